"""One file a property; `support` has what several of them need."""
