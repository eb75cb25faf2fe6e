"""Which form when: a table for each platform, and all forms by name."""

from jaxconv._lowering import cpu, gpu, tpu
from jaxconv._lowering.form import Form, Table
from jaxconv._lowering.forms import reference

#: `None` stands for every other platform; JAX takes "gpu" for CUDA and ROCm.
TABLES: dict[str | None, Table] = {None: tpu.TABLE, "cpu": cpu.TABLE, "gpu": gpu.TABLE}

#: All forms that can be forced on CPU, by name: XLA:CPU may abort on forms of the GPU's table.
FORMS: dict[str, Form] = {
    form.name: form
    for form in (reference.FORM, *(line.form for line in (*cpu.TABLE, *tpu.TABLE)))
    if form is not reference.ZEROS
}

#: The table of the CPU without oneDNN.
PORTABLE = "portable"
