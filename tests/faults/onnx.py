"""Faults of `onnx/`: nodes of ONNX, and sums of 8-bit integers."""

from tests.faults.fault import faults

ONNX = faults(
    ("onnx/_operators.py",
     ("ONNX: an operator is there in opsets before its own", " not operator.since <=", " not 1 <="),
     ("ONNX: a zero point may be of another type than its tensor",
      'if name in ("x_zero_point", "w_zero_point"):', 'if name == "w_zero_point":'),
     ("ONNX: a reference to a function's attribute is read as the attribute",
      "if proto.ref_attr_name or proto.type not in _FIELDS:", "if proto.type not in _FIELDS:"),
     ("ONNX: an error names the argument of the operation", '"weights": weights, ', ""),
    ),
    ("onnx/_apply.py",
     ("ONNX: pads list beginning and end axis by axis", '": pads[:rank],', '": pads[::2],'),
     ("ONNX: pads beside a mode are taken and ignored", 'if mode != "NOTSET" and any(pads):',
      "if len(pads) > 99:"),
     ("ONNX: a kernel_shape may have fewer axes", "kernel_shape != w.shape[2:]",
      "kernel_shape != w.shape[2 : 2 + len(kernel_shape)]"),
     ("ONNX: output_shape begins with the smaller half of the pads",
      'upper = given["auto_pad"] == "SAME_UPPER"', 'upper = given["auto_pad"] != "SAME_LOWER"'),
     ("ONNX: the state is what came first", "[:, :, length:]", "[:, :, : weight.shape[2] - 1]"),
     ("ONNX: nodes of another domain are taken", 'domain not in ("", "ai.onnx")', "domain is None"),
    ),
    ("onnx/_integers.py",
     ("integers: padding is the middle of the type", " x_zero.astype(jnp.int8),", " jnp.int8(0),"),
     ("integers: weights without a zero point are signed", "(zero) == _middle(w))", "(zero) == 0)"),
     ("integers: the zero points of both are not multiplied",
      "of_group - x_zero * np.int32(math.prod(w.shape[1:]))", "of_group"),
     ("integers: a result is rounded after its zero point is added",
      "scaled = jnp.round(sums.astype(jnp.float32) * scale.reshape(per_channel))\n"
      "    found = scaled + y_zero_point.reshape(()).astype(jnp.float32)",
      "scaled = sums.astype(jnp.float32) * scale.reshape(per_channel)\n"
      "    found = jnp.round(scaled + y_zero_point.reshape(()).astype(jnp.float32))"),
     ("integers: what is out of range wraps around",
      "jnp.clip(found, float(ends.min), float(ends.max)).astype", "found.astype(jnp.int32).astype"),
     ("integers: the scale of the first channel is that of all", "(-1) /", "(-1)[:1] /"),
    ),
)  # fmt: skip
