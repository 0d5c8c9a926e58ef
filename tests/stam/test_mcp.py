"""The MCP face asked by the official client: over stdio, bound to a patient or not, and over HTTP beside the JSON paths."""
import asyncio
import contextlib
import json
import os
import pathlib
import sys

import pytest
from service_cases import ENCODER
from test_serve import KEY, running

pytest.importorskip("mcp", reason="mcp is not installed (extra `mcp`)")

import httpx  # noqa: E402
from mcp import ClientSession, StdioServerParameters  # noqa: E402
from mcp.client.stdio import stdio_client  # noqa: E402
from mcp.client.streamable_http import streamable_http_client  # noqa: E402

from stam_jax.history.gate import FEATURES, Gate  # noqa: E402
from stam_jax.history.logistic import Logistic  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
TOOLS = {"remember", "recall", "answer", "why", "timeline"}


@contextlib.asynccontextmanager
async def over_stdio(store, **options):
    server = StdioServerParameters(command=sys.executable, env={**os.environ, "JAX_PLATFORMS": "cpu"},
                                   args=[str(HERE / "memory_server.py"), str(store), json.dumps({"stdio": True, **options})])
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        yield session


async def ok(session, tool, **arguments):
    answer = await session.call_tool(tool, arguments)
    assert not answer.isError, answer.content[0].text
    assert json.loads(answer.content[0].text) == answer.structuredContent
    return answer.structuredContent


async def refused(session, tool, **arguments):
    answer = await session.call_tool(tool, arguments)
    assert answer.isError
    return answer.content[0].text


def test_an_agent_bound_to_one_patient(tmp_path):
    async def talk():
        async with over_stdio(tmp_path / "store") as session:
            await ok(session, "remember", patient_id="P2", text="warfarin dose 5 mg daily", date="2024-01-01")
            theirs = (await ok(session, "recall", patient_id="P2", query="warfarin"))["memories"][0]["memory_id"]
        async with over_stdio(tmp_path / "store", patient_id="P1") as session:
            tools = {t.name: t for t in (await session.list_tools()).tools}
            assert tools.keys() == TOOLS
            assert not any("patient_id" in t.inputSchema["properties"] for t in tools.values())
            assert all(t.description and p.get("description") for t in tools.values() for p in t.inputSchema["properties"].values())
            first = await ok(session, "remember", text="metformin dose 850 mg bid", date="2024-01-02", author_role="patient")
            second = await ok(session, "remember", text="metformin dose 1000 mg bid", date="2024-03-01")
            assert [m["memory_id"] for m in second["moved"]] == [first["added"][0]["memory_id"]]
            assert (await ok(session, "answer", question="What is the current dose of metformin?"))["answer"].startswith("1000 mg")
            found = (await ok(session, "recall", query="metformin", most=5))["memories"]
            assert {m["store"] for m in found} == {"ACTIVE", "HISTORY"} and {m["patient_id"] for m in found} == {"P1"}
            why = await ok(session, "why", memory_id=first["added"][0]["memory_id"])
            assert why["moves"][0]["reason"] == "SUPERSEDED" and why["memory"]["sources"][0]["quote"] == "metformin dose 850 mg bid"
            slots = (await ok(session, "timeline", concept="metformin"))["slots"]
            assert [m["value"] for m in slots[0]["memories"]] == ["850 mg bid", "1000 mg bid"]
            assert "not a memory of this patient" in await refused(session, "why", memory_id=theirs)
            # a patient_id that is sent nevertheless is no argument of these tools
            sneaked = await session.call_tool("recall", {"patient_id": "P2", "query": "warfarin"})
            assert sneaked.isError or {m["patient_id"] for m in sneaked.structuredContent["memories"]} == {"P1"}

    asyncio.run(talk())


def test_an_agent_that_names_its_patient(tmp_path):
    async def talk():
        async with over_stdio(tmp_path / "store") as session:
            assert all("patient_id" in t.inputSchema["required"] for t in (await session.list_tools()).tools)
            await ok(session, "remember", patient_id="P1", text="metformin dose 850 mg bid")
            await ok(session, "remember", patient_id="P2", text="lisinopril dose 10 mg daily")
            found = (await ok(session, "recall", patient_id="P2", query="metformin"))["memories"]
            assert [m["concept"] for m in found] == ["lisinopril"]
            assert "the store does not know it" in await refused(session, "recall", patient_id="P", query="x")
            assert "expected" in await refused(session, "remember", patient_id="P1", text="x", date="tomorrow")
            assert "no text" in await refused(session, "remember", patient_id="P1", text="   ")
            assert await refused(session, "recall", patient_id="P1", query="x", most=0)
            assert await refused(session, "forget", patient_id="P1")
            recalled = (await ok(session, "recall", patient_id="P1", query="metformin"))["memories"][0]
            again = await ok(session, "remember", patient_id="P1", text=recalled["text"])  # the same entry
            assert again["known_before"] and again["version"] == 1
            for kind in ("note", "summary"):  # an agent that feeds back what it recalled
                assert "give its date" in await refused(session, "remember", patient_id="P1", text="- " + recalled["text"], kind=kind)
            packet = (await ok(session, "answer", patient_id="P1", question="What is the current dose of metformin?"))["packet"]
            for said, role in ((packet, "unknown"), (json.dumps(recalled), "unknown"), ("metformin dose 5 mg", "assistant")):
                told = await ok(session, "remember", patient_id="P1", text=said, date="2024-06-01", author_role=role)
                assert not (told["added"] or told["moved"] or told["confirmed"]), said
            said = await ok(session, "remember", patient_id="P1", text=recalled["text"], date="2024-06-01", author_role="patient")
            assert said["confirmed"]

    asyncio.run(talk())


@pytest.mark.slow
def test_an_agent_is_served_by_the_gate(tmp_path):
    model = Logistic((0.0,) * len(FEATURES), (1.0,) * len(FEATURES), (0.0,) * len(FEATURES), 0.0)  # always 1/2
    Gate(FEATURES, model, 0.75, 0.05, "rows", encoder=ENCODER).save(tmp_path / "gate.json")

    async def talk():
        async with over_stdio(tmp_path / "store", patient_id="P1", gate=str(tmp_path / "gate.json")) as session:
            for dose, day in ((850, "2024-01-02"), (1000, "2024-03-01")):
                await ok(session, "remember", text=f"metformin dose {dose} mg bid", date=day)
            said = await ok(session, "answer", question="What is the current dose of metformin?")
            assert said["arm"] == "ACTIVE" and said["gate"]["history_needed"] == 0.5 and said["gate"]["threshold"] == "0.75"
            both = await ok(session, "answer", question="What is the current dose of metformin?", arm="BOTH")
            assert both["arm"] == "BOTH" and both["gate"] is None

    asyncio.run(talk())


def test_over_http_with_the_key(tmp_path):
    async def talk(url, headers):
        async with (httpx.AsyncClient(headers=headers) as http, streamable_http_client(url, http_client=http) as (read, write, _),
                    ClientSession(read, write) as session):
            await session.initialize()
            assert {t.name for t in (await session.list_tools()).tools} == TOOLS
            await ok(session, "remember", patient_id="P1", text="metformin dose 850 mg bid", date="2024-01-02")
            return await ok(session, "answer", patient_id="P1", question="What is the current dose of metformin?")

    with running(tmp_path / "store", key=KEY, agents=True) as server:
        url = f"http://127.0.0.1:{server.port}/mcp"
        assert server.http.post("/mcp", json={}).status_code == 401
        said = asyncio.run(talk(url, {"authorization": f"Bearer {KEY}"}))
        assert said["answer"].startswith("850 mg")
        shown = server.ok("show", patient_id="P1", headers={"authorization": f"Bearer {KEY}"})
        assert len(shown["active"]) == 1
