#!/usr/bin/env python3
"""Checks the stack of compose.yaml: Prometheus' configuration, its alerts and Grafana's dashboard (ops/stack), without containers.

    tests/stack_check.py              promtool accepts the files, and each metric and label that they name is in docs/metrics.md
    tests/stack_check.py PROGRAM      the same processes without containers: worker, gateway and Prometheus, with the real broker that
                                      LORRY_KAFKA_ADDRESS_FILE names; under load, each query of the dashboard finds data
    tests/stack_check.py PROGRAM FILE.svg      the latter, for a minute, and draws what each query has found; fetches matplotlib

ctest runs the first two, as stack_files and stack_runs. Exit code 77: Prometheus is not installed (ops/setup --tests).
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
STACK = ROOT / "ops/stack"
EXAMPLE = ROOT / "ops/example"
# Labels that Prometheus adds.
OWN_LABELS = {"job", "instance", "le"}
HISTOGRAM_PARTS = ("_bucket", "_sum", "_count")


def tool(name):
    path = shutil.which(name, path=f"{ROOT}/.deps/prometheus:{os.environ['PATH']}")
    if path is None:
        print(f"skipped: {name} is not installed (ops/setup --tests installs it)")
        sys.exit(77)
    return path


def dashboard_panels():
    return json.loads((STACK / "grafana/lorry.json").read_text())["panels"]


def dashboard_queries():
    """(title, expression) of each query."""
    return [(panel["title"], target["expr"]) for panel in dashboard_panels() for target in panel["targets"]]


def alert_expressions():
    """(name, expression) of each alert: a line, or the lines after `>-`."""
    text = (STACK / "alerts.yml").read_text()
    found = []
    for alert in text.split("- alert: ")[1:]:
        name = alert.split("\n", 1)[0]
        expression = re.search(r"expr: (?:>-\n((?: {10}.*\n)+)|(.*)\n)", alert)
        found.append((name, " ".join((expression[1] or expression[2]).split())))
    return found


def documented_metrics():
    """The labels of each metric in docs/metrics.md, by its name; histograms by the names of their series."""
    metrics = {"up": set()}
    for name, labels, kind in re.findall(r"^\| `(\w+)(?:\{([\w,]+)\})?` \| (\w+) \|", (ROOT / "docs/metrics.md").read_text(), re.M):
        own = set(labels.split(",")) - {""}
        for series in [name + part for part in HISTOGRAM_PARTS] if kind == "histogram" else [name]:
            metrics[series] = own
    return metrics


def unknown_names(expression, metrics):
    """What an expression names and docs/metrics.md does not."""
    unknown = []
    names = re.findall(r"\b(?:lorry_\w+|up)\b", expression)
    labels = set()
    for name in names:
        if name in metrics:
            labels |= metrics[name]
        else:
            unknown.append(name)
    used = re.findall(r"\b(?:by|without) ?\(([^)]*)\)", expression) + re.findall(r"\{([^}]*)\}", expression)
    for group in used:
        for label in re.findall(r"(\w+)(?=\s*(?:=|!|,|$))", re.sub(r'"[^"]*"', '""', group)):
            if label not in labels | OWN_LABELS:
                unknown.append(f"label {label}")
    return unknown if names else unknown + ["no metric"]


def adapted_configuration(folder, targets, key_file):
    """The stack's configuration with the addresses and the key of this machine."""
    text = (STACK / "prometheus.yml").read_text()
    for service, address in targets.items():
        assert service in text, f"prometheus.yml has no target {service}"
        text = text.replace(service, address)
    text = text.replace("/keys/metrics", str(key_file)).replace("scrape_interval: 5s", "scrape_interval: 500ms")
    (folder / "prometheus.yml").write_text(text)
    shutil.copy(STACK / "alerts.yml", folder)
    return folder / "prometheus.yml"


def check_files():
    promtool = tool("promtool")
    failed = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "key").write_text("lorry-0\n")
        configuration = adapted_configuration(folder, {}, folder / "key")
        for command in (["config", configuration], ["rules", STACK / "alerts.yml"]):
            done = subprocess.run([promtool, "check", *command], capture_output=True, text=True)
            if done.returncode != 0:
                failed.append(f"promtool check {command[0]}: {done.stdout}{done.stderr}")
    metrics = documented_metrics()
    assert len(metrics) > 60, f"only {len(metrics)} metrics were found in docs/metrics.md"
    expressions = alert_expressions() + dashboard_queries()
    assert len(alert_expressions()) >= 10 and len(dashboard_queries()) >= 25, "the files are read wrongly"
    for where, expression in expressions:
        failed += [f"{where}: docs/metrics.md has no {each}: {expression}" for each in unknown_names(expression, metrics)]
    # The check finds what it is for.
    for wrong in ("lorry_jobs", 'lorry_jobs_total{status="x"}', "sum by (code) (lorry_jobs_total)", "lorry_commit_seconds", "vector(1)"):
        assert unknown_names(wrong, metrics), wrong
    return failed


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def get(url, body=None, key=None):
    """(status, text), after a POST if there is a body: of JSON, or of a form that is bytes."""
    is_form = isinstance(body, bytes)
    fields = {"Content-Type": "multipart/form-data; boundary=b" if is_form else "application/json"} if body is not None else {}
    if key is not None:
        fields["Authorization"] = f"Bearer {key}"
    try:
        data = body if body is None or is_form else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(url, data, fields), timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def wait_for(what, condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"in vain: {what}")
        time.sleep(0.1)


class Stack:
    """Worker, gateway and Prometheus on this machine, in a folder that is removed at the end."""

    def __init__(self, program, brokers):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lorry-stack-"))
        self.running = []
        self.program = program
        self.kafka = ["--brokers", brokers, "--prefix", self.folder.name]
        self.ports = {name: free_port() for name in ("worker", "gateway", "prometheus")}

    def lorry(self, *arguments):
        done = subprocess.run([self.program, *arguments, *self.kafka], cwd=self.folder, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"lorry {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def start(self, name, command):
        with open(self.folder / f"{name}.log", "wb") as log:
            self.running.append((name, subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log, start_new_session=True)))

    def url(self, name, path):
        return f"http://127.0.0.1:{self.ports[name]}{path}"

    def start_all(self):
        self.lorry("topics", "create", "--partitions", "2")
        model = ["--model", str(EXAMPLE / "model")]
        self.lorry("adapters", "add", "--all", str(EXAMPLE / "adapters"), *model)
        # As in the container: the script makes the keys, with this program and these topics.
        (self.folder / "lorry.toml").write_text(f'prefix = "{self.folder.name}"\n')
        (self.folder / "bin").mkdir()
        (self.folder / "bin/lorry").symlink_to(self.program)
        made = subprocess.run([STACK / "make_keys", self.kafka[1]], cwd=self.folder, capture_output=True, text=True, timeout=120,
                              env={**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}"})
        assert made.returncode == 0, made.stderr
        self.key = (self.folder / "user").read_text().strip()
        assert self.key in made.stdout
        self.start("worker", [self.program, "worker", *model, "--adapters", str(EXAMPLE / "adapters"), "--threads", "1",
                              "--metrics-address", f"127.0.0.1:{self.ports['worker']}", *self.kafka])
        self.start("gateway", [self.program, "serve", "--base-name", "model", "--listen", f"127.0.0.1:{self.ports['gateway']}",
                               "--usage-ledger", "usage.sqlite", "--files", "files", *self.kafka])
        targets = {"worker:9464": f"127.0.0.1:{self.ports['worker']}", "gateway:8000": f"127.0.0.1:{self.ports['gateway']}"}
        configuration = adapted_configuration(self.folder, targets, self.folder / "metrics")
        self.start("prometheus", [tool("prometheus"), f"--config.file={configuration}", f"--storage.tsdb.path={self.folder}/data",
                                  f"--web.listen-address=127.0.0.1:{self.ports['prometheus']}"])
        for name, path in (("worker", "/healthz"), ("gateway", "/healthz"), ("prometheus", "/-/ready")):
            wait_for(f"{name} answers", lambda: get(self.url(name, path))[0] == 200)

    def load(self, stop):
        """Calls of every kind, among them wrong ones, until `stop`."""
        kinds = [{"model": "base", "prompt": "Package:", "max_tokens": 24}, {"model": "tags", "prompt": "Package:", "max_tokens": 8},
                 {"model": "base", "prompt": "x", "temperature": -1}, {"model": "base", "prompt": "Package: perl", "max_tokens": 8, "n": 4}]
        count = 0
        while not stop.is_set():
            count += 1
            if get(self.url("gateway", "/v1/completions"), kinds[count % len(kinds)], self.key)[0] == 0:
                time.sleep(0.1)

    def send_batches(self, stop):
        """A batch of the example's jobs every few seconds, until `stop`."""
        url = "/v1/chat/completions"
        jobs = (EXAMPLE / "jobs/heldout.jsonl").read_text().splitlines(keepends=True)
        lines = "".join([job for job in jobs if json.loads(job)["url"] == url][:50])
        part = '--b\r\nContent-Disposition: form-data; name='
        form = f'{part}"purpose"\r\n\r\nbatch\r\n{part}"file"; filename="jobs.jsonl"\r\n\r\n{lines}\r\n--b--\r\n'
        while not stop.wait(3):
            status, text = get(self.url("gateway", "/v1/files"), form.encode(), self.key)
            if status == 200:
                asked = {"input_file_id": json.loads(text)["id"], "endpoint": url, "completion_window": "24h"}
                get(self.url("gateway", "/v1/batches"), asked, self.key)

    def query(self, expression, **over):
        """The samples at this time, or `over` a time: start, end, step."""
        query = urllib.parse.urlencode({"query": expression.replace("$__rate_interval", "5s"), **over})
        status, text = get(self.url("prometheus", f"/api/v1/query{'_range' if over else ''}?{query}"))
        assert status == 200, f"{expression}: {text}"
        return json.loads(text)["data"]["result"]

    def has_data(self, expression):
        values = [float(sample["value"][1]) for sample in self.query(expression)]
        return any(value == value for value in values)  # not NaN

    def log_of(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")[-2000:]

    def close(self):
        for _, process in reversed(self.running):
            process.send_signal(signal.SIGTERM)
        for _, process in self.running:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def loaded_stack(program):
    """The stack, with calls, jobs and batches until it is left."""
    stack = Stack(program, pathlib.Path(os.environ["LORRY_KAFKA_ADDRESS_FILE"]).read_text().splitlines()[0])
    stop = threading.Event()
    clients = [threading.Thread(target=stack.load, args=(stop,)) for _ in range(4)]
    clients.append(threading.Thread(target=stack.send_batches, args=(stop,)))
    try:
        stack.start_all()
        # Few enough that their intake does not hold up the calls for long.
        lines = (EXAMPLE / "jobs/heldout.jsonl").read_text().splitlines(keepends=True)
        (stack.folder / "jobs.jsonl").write_text("".join(lines[:300]))
        stack.lorry("submit", "jobs.jsonl")
        for client in clients:
            client.start()
        yield stack
    finally:
        stop.set()
        for client in clients:
            if client.is_alive():
                client.join()
        stack.close()


def check_running(program):
    tool("prometheus")
    with loaded_stack(program) as stack:
        # Each query finds data while there is load; not all at once, as rates need several samples.
        missing = dashboard_queries()
        missing += [("the load's batches", "lorry_batches > 0"), ("the load's uploads", "lorry_uploaded_bytes_total > 0")]

        def all_found():
            missing[:] = [(title, expression) for title, expression in missing if not stack.has_data(expression)]
            return not missing

        try:
            wait_for("data", all_found, 40)
        except AssertionError:
            pass
        rules = json.loads(get(stack.url("prometheus", "/api/v1/rules"))[1])["data"]["groups"][0]["rules"]
        failed = [f"{title}: no data: {expression}" for title, expression in missing]
        failed += [f"alert {rule['name']}: {rule['lastError']}" for rule in rules if rule["health"] == "err"]
        for name, expression in alert_expressions():
            stack.query(expression)
        if len(rules) != len(alert_expressions()):
            failed.append(f"Prometheus has {len(rules)} alerts, and alerts.yml {len(alert_expressions())}")
        usage = json.loads(get(stack.url("gateway", "/v1/usage?by=tenant,model"), key=stack.key)[1])
        if not any(row["tenant"] == "local" and row["model"] == "tags" and row["jobs"] > 0 for row in usage["data"]):
            failed.append(f"/v1/usage has no calls of the key: {usage}")
        if failed:
            failed += [f"log of {name}: {stack.log_of(name)}" for name, _ in stack.running]
        return failed


def draw(program, picture):
    """A picture of the dashboard after a minute of load."""
    tool("prometheus")
    seconds = 60
    python = drawing_python()
    with loaded_stack(program) as stack:
        begin = time.time()
        time.sleep(seconds)
        over = {"start": begin, "end": time.time(), "step": 2}
        panels = [{"title": panel["title"], "unit": panel["fieldConfig"]["defaults"]["unit"], "series": [
            {"legend": re.sub(r"{{(\w+)}}", lambda name: series["metric"].get(name[1], ""), target["legendFormat"]),
             "points": [[at - begin, float(value)] for at, value in series["values"]]}
            for target in panel["targets"] for series in stack.query(target["expr"], **over)]} for panel in dashboard_panels()]
    subprocess.run([python, ROOT / "tests/dashboard_chart.py", picture], input=json.dumps(panels), text=True, check=True)
    return [f"{panel['title']}: no data" for panel in panels if not panel["series"]]


def drawing_python():
    """The Python of an environment with matplotlib, which is made once."""
    folder = ROOT / "build/charts"
    if not (folder / "bin/python").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([folder / "bin/pip", "install", "-q", "--only-binary", ":all:", "matplotlib==3.10.3"], check=True)
    return folder / "bin/python"


if __name__ == "__main__":
    problems = (check_files, check_running, draw)[len(sys.argv) - 1](*sys.argv[1:])
    for problem in problems:
        print("failed:", problem)
    sys.exit(1 if problems else 0)
