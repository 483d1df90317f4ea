"""Where a program of JAX stops gradients, and which functions in it have derivatives of their own."""

import jax
from jax.extend import core
from jax.interpreters import mlir

# StableHLO has no stop_gradient: in a text for adfuse this call stands for it.
_STOP = core.Primitive("adfuse_stop_gradient")
_STOP.def_abstract_eval(lambda x: x)
mlir.register_lowering(_STOP, mlir.lower_fun(
    lambda x: jax.ffi.ffi_call("adfuse.stop_gradient", jax.typeof(x))(x), multiple_results=False))

# Functions of JAX whose rules are not the derivatives of what they compute: derivatives by the implicit function theorem,
# and of sums in which terms that are not chosen are not finite.
_RULED = {"_custom_root", "expi", "expn"}


def _iterates(program):
    """Whether a program has a loop: a solver that iterates has the derivatives of the solution, not of its steps."""
    return "while[" in str(program) or "scan[" in str(program)


def marked(jaxpr, own):
    """The program with a call for each stop_gradient but those in functions of JAX, whose derivatives are those of what
    they compute. Functions with other derivatives are noted in `own`."""
    is_program = lambda p: isinstance(p, (core.Jaxpr, core.ClosedJaxpr))
    inner = lambda p: (p.replace(jaxpr=marked(p.jaxpr, own)) if isinstance(p, core.ClosedJaxpr)
                       else marked(p, own) if is_program(p) else p)
    eqns = []
    for eqn in jaxpr.eqns:
        name, frames = eqn.primitive.name, list(getattr(eqn.source_info.traceback, "frames", []))
        rule = getattr(getattr(eqn.params.get("call_jaxpr"), "jaxpr", None), "debug_info", None)
        function, of_jax = getattr(rule, "func_name", name), jax.__path__[0] in str(rule)
        if (name in ("custom_vjp_call", "random_gamma")
                or name == "custom_linear_solve" and _iterates(eqn.params["jaxprs"].solve)
                or name == "custom_jvp_call" and (not of_jax or function in _RULED)):
            own.append(function)
        if name == "stop_gradient":
            called = next((k for k, f in enumerate(frames) if f.function_name == name), -1) + 1
            by = next((f.file_name for f in frames[called:] if not f.file_name.endswith("tree_util.py")), "")
            eqn = eqn if jax.__path__[0] in by else eqn.replace(primitive=_STOP)
        eqns.append(eqn.replace(params=jax.tree.map(inner, eqn.params, is_leaf=is_program)))
    return jaxpr.replace(eqns=eqns)
