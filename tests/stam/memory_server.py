"""Serves a memory for test_serve and test_mcp: STORE, then a JSON object of options; "stdio": the MCP tools on stdio."""
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1]), str(HERE.parents[1] / "kernels")]

from service_cases import service  # noqa: E402

from stam_jax.history.gate import Gate  # noqa: E402

store, options = sys.argv[1], json.loads(sys.argv[2])
gate = Gate.load(options["gate"]) if "gate" in options else None
made = service(store, patient_id=options.get("patient_id"), listing=options.get("listing", False), gate=gate)
if options.get("stdio"):
    from stam_jax.serve.mcp import face

    face(made).run("stdio")
else:
    from stam_jax.serve import http as serve

    key = options.get("key")
    limits = serve.Limits(**options.get("limits", {}))
    serve.serve(made, serve.bind("127.0.0.1", 0, key), key=key, limits=limits, agents=options.get("agents", False))
