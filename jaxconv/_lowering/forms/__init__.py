"""The forms: each file has ways to compute a contraction in lax, and their records.

The names that `explain` prints, such as "slide" and "in float32", are those of the records.

onednn.py                   oneDNN by its private call, and the sizes where it is safe
onednn_weights.py           weights gradients by the same call: images as channels, or as kernels
dots.py                     one dot; in parts; a dot for each tap, or for each image
im2col.py, col2im.py        windows, then a dot; a dot, then windows added up
multiply_adds.py            few channels a group
rewrite.py                  channel multipliers as depthwise; fine and coarse exchanged; float32
convolution.py              XLA's convolution in the order of axes that XLA:CPU is fast with
reference.py                XLA's convolution in any layout, as lax itself lowers it; and zeros
phases.py                   to fine as to coarse: a reversed kernel, or phases by the stride
split.py                    by group, block, piece of the kernel, or tap
window.py                   pads a fine tensor, and reads the pixels of a tap
blocks.py                   loops over parts; isolated functions; 16-bit floats as integers
"""
