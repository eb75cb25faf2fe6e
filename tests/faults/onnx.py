"""Faults of `onnx/`: nodes of ONNX, and sums of 8-bit integers."""

from tests.faults.fault import faults

NODES = "onnx/test_nodes.py"
MESSAGES, STATE = f"{NODES} -k message", f"{NODES} -k sequence"
SUMS, LARGEST = f"{NODES} -k dots", f"{NODES} -k largest"
ROUNDED, SCALES = f"{NODES} -k ties", f"{NODES} -k scales"

ONNX = faults(
    ("onnx/_operators.py",
     ("ONNX: an operator is there in opsets before its own",
      "if not operator.since <= int(opset)", "if not 1 <= int(opset)", MESSAGES),
     ("ONNX: a zero point may be of another type than its tensor",
      'if name in ("x_zero_point", "w_zero_point"):', 'if name == "w_zero_point":', MESSAGES),
     ("ONNX: a reference to a function's attribute is read as the attribute",
      "if proto.ref_attr_name or proto.type not in _FIELDS:",
      "if proto.type not in _FIELDS:", MESSAGES),
     ("ONNX: an error names the argument of the operation",
      '"src": data, "weights": weights}', '"src": data}', MESSAGES),
    ),
    ("onnx/_apply.py",
     ("ONNX: pads list beginning and end axis by axis",
      '"pads_begin": pads[:rank],', '"pads_begin": pads[::2],', SUMS),
     ("ONNX: pads beside a mode are taken and ignored",
      'if mode != "NOTSET" and any(pads):', "if len(pads) > 99:", MESSAGES),
     ("ONNX: a kernel_shape may have fewer axes",
      "tuple(kernel_shape) != w.shape[2:]",
      "tuple(kernel_shape) != w.shape[2 : 2 + len(kernel_shape)]", MESSAGES),
     ("ONNX: output_shape begins with the smaller half of the pads",
      'upper = given["auto_pad"] == "SAME_UPPER"',
      'upper = given["auto_pad"] != "SAME_LOWER"', f"{NODES} -k output_shape"),
     ("ONNX: the state is what came first",
      "return output, seen[:, :, length:]",
      "return output, seen[:, :, : weight.shape[2] - 1]", STATE),
     ("ONNX: nodes of another domain are taken",
      'if node.domain not in ("", "ai.onnx"):', "if node.domain is None:", MESSAGES),
    ),
    ("onnx/_integers.py",
     ("integers: sums in float32 may be of twice as many products",
      "MAX_FLOAT_PRODUCTS = 2**24 // 255**2", "MAX_FLOAT_PRODUCTS = 2**25 // 255**2", LARGEST),
     ("integers: padding is the middle of the type",
      "lax.pad(x, x_zero.astype(jnp.int8),", "lax.pad(x, jnp.int8(0),", SUMS),
     ("integers: weights without a zero point are signed",
      "np.all(np.asarray(zero) == _middle(w))", "np.all(np.asarray(zero) == 0)", SUMS),
     ("integers: the zero points of both are not multiplied",
      "sum_with(jnp.ones_like(w[:, :1])) - x_zero * np.int32(w.shape[2])",
      "sum_with(jnp.ones_like(w[:, :1]))", SUMS),
     ("integers: a result is rounded after its zero point is added",
      "scaled = jnp.round(sums.astype(jnp.float32) * scale.reshape(per_channel))\n"
      "    found = scaled + y_zero_point.reshape(()).astype(jnp.float32)",
      "scaled = sums.astype(jnp.float32) * scale.reshape(per_channel)\n"
      "    found = jnp.round(scaled + y_zero_point.reshape(()).astype(jnp.float32))", ROUNDED),
     ("integers: what is out of range wraps around",
      "jnp.clip(found, float(ends.min), float(ends.max)).astype(y_zero_point.dtype)",
      "found.astype(jnp.int32).astype(y_zero_point.dtype)", f"{NODES} -k saturates"),
     ("integers: the scale of the first channel is that of all",
      "w_scale.reshape(-1) /", "w_scale.reshape(-1)[:1] /", SCALES),
    ),
)  # fmt: skip
