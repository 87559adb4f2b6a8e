"""Sets everything up, then runs the broker or its tests. Needs Python 3.11 or newer and nothing else.

    python3 dev.py run [OPTIONS OF trunkline serve]
    python3 dev.py test --quick [OPTIONS OF pytest]
    python3 dev.py test [OPTIONS OF pytest]

`run` is set up in less than a minute, `test --quick` in one or two: it leaves out Spark, the event log, benchmarks,
attacks, fuzzing, other clients, power cuts and examples, and takes about four minutes on two processors. `test` runs
everything: its set-up takes minutes, as Spark and its Java are a gigabyte, and the tests take ten to fifteen more. How
many tests there are, and how long they take about, they say when they begin.

The packages go into .venv beside this file (or into the folder that `--venv` before the command names), and are
installed again only when pyproject.toml has changed, or with another Python.
"""

# Old Pythons must get as far as the message that they are too old: no newer syntax here.

import hashlib
import os
import shutil
import subprocess
import sys

if sys.version_info < (3, 11):
    sys.exit("Trunkline needs Python 3.11 or newer; this is %d.%d (%s)." % (sys.version_info[:2] + (sys.executable,)))

from pathlib import Path

ROOT = Path(__file__).resolve().parent
NODE = ROOT / "tests" / "interop" / "node"
#: What pip installs for each command, and what else is good for it: each one's packages include those before it.
PACKAGES = {
    "run": ["--editable", "."],
    "quick": ["--editable", ".", "--group", "test-quick"],
    "test": ["--editable", ".", "--group", "test"],
}
#: What the quick form leaves out.
SLOW = [
    *("analytics", "attacks", "bench", "events", "fuzz", "interop"),
    *("broker/test_full_disk.py", "broker/node/test_storing.py", "streams/test_turns.py"),
    *("client/rows/test_integration.py", "conformance/test_two_clients.py", "plugins/shipped/test_under_load.py"),
    *("management/test_upgrade.py", "testing/test_clean_end.py", "testing/test_projects.py"),
    *("store/test_damage.py", "store/test_model.py", "store/test_salvage.py"),
    *("store/test_power_loss.py", "store/test_power_loss_of_a_broker.py"),
    *("test_examples.py", "test_mutants.py", "test_newcomers.py"),
]
HOW_LONG = {"run": "half a minute", "quick": "a minute", "test": "minutes: Spark and its Java are a gigabyte"}


def main(arguments):
    venv = ROOT / ".venv"
    if arguments[:1] == ["--venv"] and len(arguments) > 1:
        venv, arguments = Path(arguments[1]).resolve(), arguments[2:]
    if arguments[:1] in (["-h"], ["--help"]):
        print(__doc__.strip())
        return
    if not arguments or arguments[0] not in ("run", "test"):
        sys.exit(__doc__.strip())
    command, *options = arguments
    check_links()
    if command == "run":
        execute([prepare(venv, command), "-m", "trunkline", "serve", *options])
    elif "--quick" in options:
        options.remove("--quick")
        test(prepare(venv, "quick"), ["--ignore=tests/" + each for each in SLOW] + options)
    else:
        python = prepare(venv, command)
        prepare_node()
        test(python, options)


def test(python, options):
    os.chdir(ROOT)
    workers = [] if any(option.startswith(("-n", "--numprocesses")) for option in options) else ["-n", "auto"]
    # tests start hundreds of processes: none is to compile what another has compiled
    environ = {**os.environ, "PYTHONPYCACHEPREFIX": str(Path(python).parents[1] / "compiled")}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    execute([python, "-m", "pytest", *workers, *options], environ)


def check_links():
    if not (ROOT / "src" / "trunkline" / "mqtt").is_dir():
        sys.exit(
            "src/trunkline/mqtt should be a symbolic link, and git wrote a file instead. On Windows, turn on developer "
            "mode, then clone anew with: git clone -c core.symlinks=true URL"
        )


def prepare(venv, command):
    """The virtual environment's interpreter, with all installed that the command needs."""
    python = venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    state = "%s %s" % (sys.version, hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest())
    stamps = {name: venv / ("installed-for-" + name) for name in PACKAGES}
    names = list(PACKAGES)
    enough = [stamps[name] for name in names[names.index(command) :]]
    if python.exists() and any(stamp.exists() and stamp.read_text() == state for stamp in enough):
        return str(python)
    is_of_this = any(stamp.exists() and made_with_this(stamp) for stamp in stamps.values())
    if python.exists() and not is_of_this:
        print("%s is of another Python: it is made anew (--venv DIR keeps both)." % venv, file=sys.stderr, flush=True)
    print("Setting up %s, which takes %s ..." % (venv, HOW_LONG[command]), file=sys.stderr, flush=True)
    if not python.exists() or not is_of_this:
        step([sys.executable, "-m", "venv", "--clear", str(venv)])
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    if command != "run":
        step([*pip, "--upgrade", "pip>=25.1"])  # the first that knows dependency groups
        pip.append("--no-compile")  # tests compile into a folder of their own
    step([*pip, *PACKAGES[command]])
    stamps[command].write_text(state)
    return str(python)


def made_with_this(stamp):
    return stamp.read_text().startswith(sys.version)


def prepare_node():
    """MQTT.js, for its interoperability tests; without npm those are skipped."""
    npm = shutil.which("npm")
    wanted = NODE / "package.json"
    stamp = NODE / "node_modules" / "installed-for"
    if npm is None or not wanted.exists() or (stamp.exists() and stamp.read_text() == wanted.read_text()):
        return
    print("Setting up %s ..." % NODE, file=sys.stderr, flush=True)
    if subprocess.call([npm, "install", "--silent", "--no-audit", "--no-fund"], cwd=str(NODE)) == 0:
        stamp.write_text(wanted.read_text())
    else:
        print("npm could not install MQTT.js: its tests will be skipped.", file=sys.stderr, flush=True)


def step(command):
    code = subprocess.call(command, cwd=str(ROOT))
    if code:
        sys.exit("This failed: %s" % " ".join(command))


def execute(command, environ=None):
    if os.name != "nt":
        os.execve(command[0], command, environ or os.environ)
    process = subprocess.Popen(command, env=environ)
    while True:
        try:
            sys.exit(process.wait())
        except KeyboardInterrupt:
            continue  # Ctrl-C reaches the broker too, which stops


if __name__ == "__main__":
    main(sys.argv[1:])
