"""The rules for users: arguments and shapes become a geometry, or an error.

op.py           the six operations: their tensors, and the slot of each tensor
arguments.py    the tensors: arrays of one accepted type; type and sharding of the result
attributes.py   the attributes: type, length, sign, spelling
layouts.py      the letters of formats, as axis numbers; do channels, weights and groups fit?
sizes.py        extents and pads of one axis: a rule for each operation; the padding of auto_pad
resolve.py      calls all these rules
values.py       attributes as files of other libraries have them: a table of types and spellings
"""
