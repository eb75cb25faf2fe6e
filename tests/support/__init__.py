"""What tests share: an independent oracle, forms and cases to compute, and how to look at them."""
