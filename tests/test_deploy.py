"""What is in `deploy/`, as far as it can be checked without Docker and a cluster: schemas, arguments, paths, times."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from leasehold.cli.app import app
from leasehold.cli.dashboard import TOKEN
from leasehold.clock import SystemClock
from leasehold.dashboard.access import OPEN
from leasehold.listening import Address
from leasehold.metrics.instance_server import MetricsServer
from leasehold.notices import Notices
from leasehold.pipeline_file import PipelineFile, read_pipeline_file
from leasehold.spark.loop.settings import loop_settings
from leasehold.waiting import INSTANCE
from tests.repository import ROOT

DEPLOY = ROOT / "deploy"
RELEASES = ("1.29", "1.33", "1.37")
FILES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
Document = dict[str, Any]


def documents() -> list[Document]:
    return [one for file in FILES for one in yaml.safe_load_all(file.read_text(encoding="utf-8"))]


def named(kind: str, name: str = "") -> Document:
    [found] = [one for one in documents() if one["kind"] == kind and one["metadata"]["name"].endswith(name)]
    return found


def pods() -> dict[str, Document]:
    """What the pods of each Deployment are."""
    return {
        one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in documents() if one["kind"] == "Deployment"
    }


def containers() -> dict[str, Document]:
    return {each["name"]: each for pod in pods().values() for each in pod["containers"]}


@pytest.fixture
def pipeline(tmp_path: Path) -> PipelineFile:
    [(name, text)] = named("ConfigMap")["data"].items()
    (tmp_path / name).write_text(text, encoding="utf-8")
    return read_pipeline_file(tmp_path / name, environment={"DATABASE_PASSWORD": "secret"})


@pytest.mark.parametrize("release", RELEASES)
def test_the_manifests_fit_the_schemas_of_kubernetes(release: str) -> None:
    found = documents()
    assert len(found) == 5
    for one in found:
        kubernetes_validate.validate(one, release, strict=True)
    one["metadata"]["nmae"] = "a mistake"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(one, release, strict=True)


def test_what_refers_to_each_other_is_there() -> None:
    for one in documents():
        if one["kind"] == "Deployment":
            labels = one["spec"]["template"]["metadata"]["labels"]
            assert one["spec"]["selector"]["matchLabels"].items() <= labels.items()
    running = named("Deployment", "-flights")["spec"]["selector"]
    assert named("PodDisruptionBudget")["spec"]["selector"] == running
    watching = named("Deployment", "-watch")["spec"]["template"]
    assert named("Service")["spec"]["selector"].items() <= watching["metadata"]["labels"].items()
    ports = {port["name"] for each in watching["spec"]["containers"] for port in each["ports"]}
    assert {port["targetPort"] for port in named("Service")["spec"]["ports"]} == ports
    for pod in pods().values():
        there = {each["name"]: each for each in pod["volumes"]}
        assert there["pipeline"]["configMap"]["name"] == named("ConfigMap")["metadata"]["name"]
        assert not any("persistentVolumeClaim" in each for each in there.values()), "nothing binds pods to one node"
        for each in pod["containers"]:
            assert {mount["name"] for mount in each["volumeMounts"]} <= there.keys()
            probed = [each[name] for name in ("startupProbe", "livenessProbe", "readinessProbe") if name in each]
            asked = {(probe.get("httpGet") or probe["tcpSocket"])["port"] for probe in probed}
            assert asked <= {port["name"] for port in each["ports"]}


def test_the_commands_take_their_arguments(tmp_path: Path, pipeline: PipelineFile) -> None:
    for name, container in containers().items():
        command, *words = container["args"]
        assert command == name
        words = [word.replace("/etc/leasehold/", f"{tmp_path}/").replace("$(POD_NAME)", "pod-1") for word in words]
        context = app.get_command(app.make_context("leasehold", ["--help"], resilient_parsing=True), command)
        assert context is not None
        context.make_context(command, words)
        for word in words:
            if word.startswith("0.0.0.0:"):
                assert Address.parse(word).port in [port["containerPort"] for port in container["ports"]]


def test_the_pipeline_file_has_its_variables_and_its_port(pipeline: PipelineFile) -> None:
    [text] = named("ConfigMap")["data"].values()
    variables = set(re.findall(r"\$\{(\w+)\}", text))
    for container in containers().values():
        assert variables <= {one["name"] for one in container["env"]}
    assert pipeline.metrics.listen is not None
    assert [port["containerPort"] for port in containers()["run"]["ports"]] == [pipeline.metrics.listen.port]
    assert pipeline.sink_url.startswith("postgresql://"), "pods on several nodes fill one table"
    assert TOKEN in {one["name"] for one in containers()["dashboard"]["env"]}


def test_the_probes_ask_for_what_is_served() -> None:
    server = MetricsServer([Notices()], Address("127.0.0.1", 0), clock=SystemClock())
    try:
        run = containers()["run"]
        paths = {name: run[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
        assert paths == {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
        assert set(paths.values()) <= set(server.paths)
    finally:
        server.close()
    for name in ("livenessProbe", "readinessProbe"):
        assert containers()["dashboard"][name]["httpGet"]["path"] in OPEN  # without the token


def test_the_times_fit_one_another(pipeline: PipelineFile) -> None:
    settings = loop_settings({**pipeline.loop_options(), "owner_id": "pod-1", "available_now": False})
    grace = pods()["leasehold-flights"]["terminationGracePeriodSeconds"]
    assert grace >= settings.stop_timeout + 2 * settings.source.settings.request_timeout + 30.0
    startup = containers()["run"]["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 2 * INSTANCE + 30.0
    liveness = containers()["run"]["livenessProbe"]
    assert liveness["periodSeconds"] * liveness["failureThreshold"] < settings.source.settings.stall_timeout


def test_nobody_is_root_and_nothing_is_written_but_where_it_may_be() -> None:
    user = re.search(r"^USER (\d+)$", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert user
    for pod in pods().values():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == int(user[1])
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["resources"].keys() == {"requests", "limits"}


def test_the_dockerfile_copies_what_is_there_and_asks_for_extras_that_are() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    for line in re.findall(r"^COPY (?!--from)(.*)$", text, flags=re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists()
            assert f"!{source}" in ignored
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["readme"] in text
    assert project["license-files"][0] in text
    extras = re.search(r"'\.\[(.*?)\]'", text)
    assert extras
    assert set(extras[1].split(",")) <= project["optional-dependencies"].keys() - {"demo", "dev"}
    versions = set(re.findall(r"^FROM python:(\d+\.\d+)-slim\S*", text, flags=re.MULTILINE))
    assert versions <= {one.rpartition(" ")[2] for one in project["classifiers"]}
    assert 'ENTRYPOINT ["leasehold"]' in text
