#!/usr/bin/env python3
"""A client of `plimsoll exec-server --listen stdio`, written from the protocol's text alone.

It knows nothing of Plimsoll's code: raw JSON lines over pipes, the standard library, bounded waits. The program is
$PLIMSOLL_BIN. The last line is "N passed, M failed"; the exit code is 0 when nothing failed.
"""

import base64
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.parse

LONGEST = 60.0
IDLE = "while :; do sleep 0.05; done"


class Server:
    """A server that runs, and the lines it says."""

    def __init__(self, *flags):
        command = [os.environ["PLIMSOLL_BIN"], "exec-server", "--listen", "stdio", "--grace", "300ms", *flags]
        self.child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        self.lines = queue.Queue()
        self.errors = []
        self.kept = []
        self.next_id = 100
        self.threads = [threading.Thread(target=self._hear), threading.Thread(target=self._hear_errors)]
        for thread in self.threads:
            thread.daemon = True
            thread.start()

    def _hear(self):
        for line in iter(self.child.stdout.readline, b""):
            self.lines.put(line)
        self.lines.put(None)

    def _hear_errors(self):
        for line in iter(self.child.stderr.readline, b""):
            self.errors.append(line.decode("utf-8", "replace"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # The end of its input first: killed, it could not end its processes.
        try:
            self.child.stdin.close()
            self.child.wait(LONGEST)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self.child.kill()
        self.child.wait()

    def send_bytes(self, data):
        """Writes without waiting longer than LONGEST: a server that does not read must not hang the suite."""
        def write():
            try:
                view = memoryview(data)
                while view:
                    view = view[self.child.stdin.write(view):]
            except (BrokenPipeError, ValueError):
                pass
        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        writer.join(LONGEST)
        assert not writer.is_alive(), "the server does not read"

    def send(self, message):
        line = message if isinstance(message, (bytes, str)) else json.dumps(message)
        self.send_bytes((line if isinstance(line, bytes) else line.encode()) + b"\n")

    def ask(self, method, params=None, **more):
        self.next_id += 1
        message = {"id": self.next_id, "method": method, **more}
        if params is not None:
            message["params"] = params
        self.send(message)
        return self.next_id

    def read(self):
        """The next message; None at the end."""
        line = self.lines.get(timeout=LONGEST)
        if line is None:
            return None
        assert line.endswith(b"\n"), f"a line without its end: {line[:200]!r}"
        message = json.loads(line)
        assert isinstance(message, dict) and "jsonrpc" not in message, message
        return message

    def find(self, what, is_so):
        for at, message in enumerate(self.kept):
            if is_so(message):
                return self.kept.pop(at)
        while True:
            try:
                message = self.read()
            except queue.Empty:
                raise AssertionError(f"waited in vain for {what}; came: {self.kept[-5:]}") from None
            assert message is not None, f"the server ended before {what}: {self.errors}"
            if is_so(message):
                return message
            self.kept.append(message)

    def reply(self, request_id):
        return self.find(f"the reply to {request_id}", lambda m: "method" not in m and m.get("id") == request_id)

    def call(self, method, params=None, **more):
        return self.reply(self.ask(method, params, **more))

    def open(self):
        result = self.call("initialize", {"clientName": "peer"})["result"]
        self.send({"method": "initialized"})
        return result

    def start(self, process, script, **more):
        return self.call("process/start", start_params(process, ["/bin/sh", "-c", script], **more))

    def must_start(self, process, script, **more):
        reply = self.start(process, script, **more)
        assert reply.get("result") == {"processId": process}, reply

    def write(self, process, data, write_id):
        return self.reply(self.ask_write(process, data, write_id))

    def ask_write(self, process, data, write_id):
        chunk = base64.b64encode(data).decode()
        return self.ask("process/write", {"processId": process, "chunk": chunk, "writeId": write_id})

    def close_stdin(self, process):
        assert self.call("plimsoll/process/closeStdin", {"processId": process})["result"] == {}

    def story(self, process, heard=None):
        """Everything about a process to its close, in order and without a gap."""
        story = heard or Story()
        while not story.closed:
            story.add(self.of(process))
        assert len(story.exits) == 1, story.exits
        return story

    def hear(self, process, text):
        story = Story()
        while text not in story.stdout:
            story.add(self.of(process))
        return story

    def of(self, process):
        return self.find(
            f"word of {process}", lambda m: "id" not in m and m.get("params", {}).get("processId") == process
        )

    def end(self):
        """Ends the input and waits: the exit code."""
        self.child.stdin.close()
        return self.child.wait(LONGEST)


class Story:
    def __init__(self):
        self.stdout = b""
        self.stderr = b""
        self.exits = []
        self.closed = False
        self.seq = 0

    def add(self, message):
        params = message["params"]
        self.seq += 1
        assert params["seq"] == self.seq, (self.seq, message)
        assert not self.closed, message
        if message["method"] == "process/output":
            chunk = base64.b64decode(params["chunk"], validate=True)
            assert 0 < len(chunk) <= 8192, len(chunk)
            if params["stream"] == "stdout":
                self.stdout += chunk
            elif params["stream"] == "stderr":
                self.stderr += chunk
            else:
                raise AssertionError(message)
        elif message["method"] == "process/exited":
            self.exits.append(params)
        elif message["method"] == "process/closed":
            self.closed = True
        else:
            raise AssertionError(message)

    @property
    def code(self):
        return self.exits[0]["exitCode"]


def start_params(process, argv, **more):
    params = {"processId": process, "argv": argv, "cwd": "file:///", "env": {"PATH": os.environ["PATH"]}, "tty": False}
    params.update(more)
    return params


def runs(pid):
    try:
        with open(f"/proc/{int(pid)}/stat", "rb") as stat:
            return stat.read().rsplit(b") ", 1)[1][:1] not in (b"Z", b"X")
    except FileNotFoundError:
        return False


def until(what, is_so):
    began = time.monotonic()
    while not is_so():
        assert time.monotonic() - began < LONGEST, f"waited in vain for {what}"
        time.sleep(0.01)


def code_of(reply):
    return reply["error"]["code"]


CASES = []


def case(function):
    CASES.append(function)
    return function


# The handshake


@case
def calls_before_the_handshake_say_which_step_is_missing():
    with Server() as server:
        reply = server.call("environment/status")
        assert code_of(reply) == -32600 and "initialize" in reply["error"]["message"], reply
        assert code_of(server.call("initialize", {"clientName": "p", "resumeSessionId": "none"})) == -32600
        result = server.call("initialize", {"clientName": "p"})["result"]
        assert isinstance(result["sessionId"], str) and result["sessionId"], result
        reply = server.call("environment/status")
        assert code_of(reply) == -32600 and "initialized" in reply["error"]["message"], reply
        server.send({"method": "initialized", "params": {}})
        assert server.call("environment/status")["result"] == {"status": "ready"}
        assert code_of(server.call("initialize", {"clientName": "p"})) == -32600
        assert server.end() == 0


@case
def the_environment_has_its_shape():
    with Server() as server:
        told = server.open()["environmentInfo"]
        asked = server.call("environment/info")["result"]
        assert told == asked
        assert told["shell"]["path"].startswith("/") and told["shell"]["name"]
        digest = told["providerId"].removeprefix("sha256:")
        assert len(digest) == 64 and set(digest) <= set("0123456789abcdef"), told["providerId"]
        assert told["cwd"].startswith("file:///") and isinstance(told["executorVersion"], str)
        assert all(value is False for value in told["capabilities"].values())
        assert "plimsoll/process/closeStdin" in told["plimsoll"]["methods"]
        assert told["plimsoll"]["limits"]["jsonValues"] == 262144


@case
def parameters_may_be_absent_null_or_empty():
    with Server() as server:
        server.open()
        for more in [{}, {"params": None}, {"params": {}}, {"trace": {"traceparent": "00"}}, {"trace": None}]:
            server.send({"id": 1, "method": "environment/status", **more})
            assert server.reply(1)["result"] == {"status": "ready"}, more


@case
def handshake_and_work_in_one_write():
    with Server() as server:
        chunk = base64.b64encode(b"hello").decode()
        lines = [
            {"id": "a", "method": "initialize", "params": {"clientName": "p"}},
            {"method": "initialized"},
            {"id": "b", "method": "process/start", "params": start_params("p", ["cat"], pipeStdin=True)},
            {"id": "c", "method": "process/write", "params": {"processId": "p", "chunk": chunk, "writeId": "1"}},
            {"id": "d", "method": "plimsoll/process/closeStdin", "params": {"processId": "p"}},
        ]
        server.send_bytes("".join(json.dumps(line) + "\n" for line in lines).encode())
        for request_id in "abcd":
            assert "result" in server.reply(request_id), request_id
        story = server.story("p")
        assert (story.stdout, story.code) == (b"hello", 0)


# The envelope


@case
def malformed_messages_are_answered_and_the_connection_lives():
    table = [
        (b"hello", -1),
        (b"7", -1),
        (b"[]", -1),
        (b"{}", -1),
        (b'[{"id":7,"method":"environment/status"}]', -1),
        (b'{"id":1.5,"method":"environment/status"}', -1),
        (b'{"id":1e2,"method":"environment/status"}', -1),
        (b'{"id":null,"method":"environment/status"}', -1),
        (b'{"id":true,"method":"environment/status"}', -1),
        (b'{"id":9223372036854775808,"method":"environment/status"}', -1),
        (b'{"id":7,"method":"environment/status","params":{"a":1,"a":2}}', 7),
        (b'{"id":7,"method":"environment/status","params":"\xff"}', 7),
        (b'{"id":7,"method":"environment/status","trace":5}', 7),
        (b'{"id":7,"method":"environment/status"', 7),
        (b'{"params":[' + b"[" * 200 + b"]" * 200 + b'],"method":"environment/status","id":7}', 7),
    ]
    # Answers under -1 are paced, so a few lines a connection.
    for at in range(0, len(table), 5):
        with Server() as server:
            server.open()
            for line, request_id in table[at:at + 5]:
                server.send(line)
                reply = server.reply(request_id)
                assert code_of(reply) == -32600, (line, reply)
                assert server.call("environment/status")["result"] == {"status": "ready"}, line
            assert server.end() == 0


@case
def ids_come_back_as_they_were():
    with Server() as server:
        server.open()
        for request_id in ["x", "", "7", 7, -7, 0, 2**63 - 1, -(2**63), 'q"\\\u00e9\n']:
            server.send({"id": request_id, "method": "environment/status"})
            reply = server.find("a reply", lambda m: "result" in m)
            assert reply["id"] == request_id and type(reply["id"]) is type(request_id), reply


@case
def the_value_count_is_exact():
    with Server() as server:
        for count, code in [(262140, -32601), (262141, -32600), (3, -32601)]:
            server.send(b'{"id":77,"method":"nope","params":[' + b",".join([b"0"] * count) + b"]}")
            assert code_of(server.reply(77)) == code, count


@case
def numbers_and_odd_keys_are_ordinary_json():
    with Server() as server:
        server.open()
        digits = "9" * 5000
        keys = '"$serde_json::private::Number":"x","$serde_json::private::RawValue":"y"'
        server.send(f'{{"id":1,"method":"environment/status","params":{{"n":{digits},"e":1e{digits},"o":{{{keys}}}}}}}')
        assert server.reply(1)["result"] == {"status": "ready"}


@case
def an_oversized_line_is_answered_by_its_id():
    with Server("--message-bytes", "64KiB") as server:
        server.open()
        for size, reason in [(60_000, None), (100_000, "messageBytes"), (3_000_000, "messageBytes")]:
            for last in [False, True]:
                pad = "x" * size
                first = f'{{"id":5,"method":"nope","params":"{pad}"}}'
                server.send(f'{{"params":"{pad}","method":"nope","id":5}}' if last else first)
                reply = server.reply(5)
                assert reply["error"].get("data", {}).get("reason") == reason, (size, last, reply)
        assert server.call("environment/status")["result"] == {"status": "ready"}


@case
def unknown_notifications_and_replies_to_nothing_are_ignored():
    with Server() as server:
        server.open()
        for message in [{"method": "nope"}, {"id": 3, "result": 1}, {"id": -1, "error": {"code": 1, "message": ""}}]:
            server.send(message)
        assert server.call("environment/status")["result"] == {"status": "ready"}
        assert server.kept == [], server.kept


@case
def unknown_methods_are_32601():
    with Server() as server:
        server.open()
        for method in ["nope", "", "process/Start", "process/output"]:
            assert code_of(server.call(method, {})) == -32601, method


@case
def a_last_request_without_newline_is_answered():
    with Server() as server:
        server.open()
        server.must_start("p", "echo $$; exec sleep 1000")
        pid = server.hear("p", b"\n").stdout
        assert runs(pid)
        server.send_bytes(b'{"id":9,"method":"environment/status"}')
        server.child.stdin.close()
        assert server.reply(9)["result"] == {"status": "ready"}
        assert server.child.wait(LONGEST) == 0
        assert not runs(pid)


# Processes


@case
def codes_signals_and_streams():
    with Server() as server:
        server.open()
        for script, code, signal_number in [
            ("exit 0", 0, None),
            ("exit 7", 7, None),
            ("kill -KILL $$", 137, 9),
            ("kill -TERM $$", 143, 15),
        ]:
            server.must_start(script, "echo out; echo err >&2; " + script)
            story = server.story(script)
            assert (story.stdout, story.stderr, story.code) == (b"out\n", b"err\n", code), script
            assert story.exits[0].get("plimsoll", {}).get("signal") == signal_number, story.exits


@case
def the_environment_of_a_child_is_what_was_sent():
    with Server() as server:
        server.open()
        params = start_params("p", ["/usr/bin/env"], env={"A": "1", "B": "x y"})
        assert "result" in server.call("process/start", params)
        assert sorted(server.story("p").stdout.split(b"\n")) == [b"", b"A=1", b"B=x y"]
        policy = {"inherit": "none", "ignoreDefaultExcludes": False, "exclude": [], "set": {"S": "1"}, "includeOnly": []}
        params = start_params("q", ["/usr/bin/env"], env={"A": "1"}, envPolicy=policy)
        assert "result" in server.call("process/start", params)
        assert sorted(server.story("q").stdout.split(b"\n")) == [b"", b"A=1", b"S=1"]


@case
def where_and_under_which_name_it_runs():
    with Server() as server, tempfile.TemporaryDirectory() as place:
        server.open()
        odd = os.path.join(os.fsencode(os.path.realpath(place)), b"a b%\xff")
        os.mkdir(odd)
        cwd = "file://" + urllib.parse.quote(odd)
        server.must_start("p", "pwd", cwd=cwd)
        assert server.story("p").stdout == odd + b"\n"
        params = start_params("q", ["cat", "/proc/self/cmdline"], arg0="other")
        assert "result" in server.call("process/start", params)
        assert server.story("q").stdout == b"other\0/proc/self/cmdline\0"


@case
def what_cannot_be_started():
    with Server() as server:
        server.open()
        table = [
            (start_params("p", []), -32602, None),
            (start_params("p", [""]), -32602, None),
            (start_params("p", ["true\0"]), -32602, None),
            (start_params("p", ["true"], cwd="/tmp"), -32602, None),
            (start_params("p", ["true"], tty=True), -32602, None),
            (start_params("p", ["no-such-program-here"]), -32603, "spawnNotFound"),
            (start_params("p", ["/etc/passwd"]), -32603, "spawnPermissionDenied"),
            (start_params("p", ["true"], cwd="file:///nonexistent"), -32603, "spawnFailed"),
            (start_params("p", ["true"], enforceManagedNetwork=True), -32603, "sandboxUnavailable"),
            (
                start_params("p", ["true"], sandbox={"permissions": {"type": "external", "network": "enabled"}}),
                -32603,
                "sandboxUnavailable",
            ),
        ]
        for params, code, kind in table:
            reply = server.call("process/start", params)
            data = reply["error"].get("data") or {}
            assert (code_of(reply), data.get("kind")) == (code, kind), (params, reply)
        server.must_start("p", "exit 3", sandbox={"permissions": {"type": "disabled"}})
        assert code_of(server.start("p", "exit 3")) == -32600, "its id is taken"
        assert server.story("p").code == 3


@case
def stdin_is_null_unless_asked_for():
    with Server() as server:
        server.open()
        server.must_start("p", "readlink /proc/self/fd/0; cat")
        assert server.story("p").stdout == b"/dev/null\n"


@case
def writes_arrive_in_order_and_once():
    with Server() as server:
        server.open()
        server.must_start("p", "cat", pipeStdin=True)
        for data, write_id in [(b"one ", "a"), (b"two ", "b"), (b"two ", "b"), (b"three", "c")]:
            assert server.write("p", data, write_id)["result"] == {"status": "accepted"}
        big = os.urandom(500_000)
        server.must_start("q", "cat", pipeStdin=True)
        assert server.write("q", big, "1")["result"] == {"status": "accepted"}
        server.close_stdin("q")
        assert server.story("q").stdout == big
        server.close_stdin("p")
        assert server.write("p", b"late", "d")["result"] == {"status": "stdinClosed"}
        assert server.story("p").stdout == b"one two three"
        assert server.write("p", b"x", "e")["result"] == {"status": "stdinClosed"}
        assert server.write("nobody", b"x", "e")["result"] == {"status": "unknownProcess"}
        assert code_of(server.write("p", b"x", "")) == -32602
        reply = server.call("process/write", {"processId": "p", "chunk": "aGk", "writeId": "f"})
        assert code_of(reply) == -32602, "base64 without its padding"


@case
def writes_to_a_child_that_never_reads():
    with Server("--write-wait", "300ms", "--stdin-bytes", "512KiB") as server:
        server.open()
        server.must_start("p", "echo ready; " + IDLE, pipeStdin=True)
        story = server.hear("p", b"ready")
        asked = [server.ask_write("p", b"x" * 65536, str(n)) for n in range(130)]
        assert server.call("environment/status")["result"] == {"status": "ready"}, "while they wait"
        accepted = refused = 0
        for request_id in asked:
            reply = server.reply(request_id)
            if "result" in reply:
                assert reply["result"] == {"status": "accepted"} and refused == 0, reply
                accepted += 1
            else:
                data = reply["error"]["data"]
                assert (code_of(reply), data["reason"], data["retryable"]) == (-31009, "writeWait", True), reply
                refused += 1
        assert accepted + refused == 130 and accepted >= 8, (accepted, refused)
        assert server.call("process/terminate", {"processId": "p"})["result"] == {"running": True}
        assert server.story("p", story).code == 143


@case
def interrupt_and_terminate():
    with Server() as server:
        server.open()
        server.must_start("i", f"trap 'echo heard; exit 4' INT; echo ready; {IDLE}")
        story = server.hear("i", b"ready")
        assert server.call("process/signal", {"processId": "i", "signal": "interrupt"})["result"] == {}
        story = server.story("i", story)
        assert (story.code, story.stdout) == (4, b"ready\nheard\n")
        assert server.call("process/terminate", {"processId": "i"})["result"] == {"running": False}
        server.must_start("deaf", f"trap '' TERM; echo ready; {IDLE}")
        story = server.hear("deaf", b"ready")
        assert server.call("process/terminate", {"processId": "deaf"})["result"] == {"running": True}
        assert server.story("deaf", story).code == 137, "killed after its grace"
        assert code_of(server.call("process/signal", {"processId": "x", "signal": "interrupt"})) == -32600
        assert code_of(server.call("process/signal", {"processId": "i", "signal": "kill"})) == -32602
        assert server.call("process/terminate", {"processId": "x"})["result"] == {"running": False}


@case
def a_grandchild_does_not_hold_up_the_close():
    with Server() as server, tempfile.TemporaryDirectory() as place:
        server.open()
        done = os.path.join(place, "done")
        server.must_start("p", f"(sleep 1; head -c 200000 /dev/zero && echo > {done}) & echo own; exit 5")
        story = server.story("p")
        assert (story.code, story.stdout) == (5, b"own\n")
        assert not os.path.exists(done)
        until("the grandchild", lambda: os.path.exists(done))


@case
def many_bytes_on_both_pipes_and_a_slow_reader():
    with Server("--outgoing-bytes", "64KiB") as server:
        server.open()
        server.must_start("p", "seq 1 300000 & seq 300001 600000 >&2; wait")
        time.sleep(0.5)
        story = server.story("p")
        assert story.stdout == b"".join(b"%d\n" % n for n in range(1, 300001))
        assert story.stderr == b"".join(b"%d\n" % n for n in range(300001, 600001))
        assert story.code == 0


@case
def the_process_limit_is_retryable():
    with Server("--processes", "2") as server:
        server.open()
        server.must_start("a", "exec sleep 1000")
        server.must_start("b", "exec sleep 1000")
        reply = server.start("c", "exit 0")
        data = reply["error"]["data"]
        assert (code_of(reply), data["reason"], data["retryable"]) == (-31009, "processes", True), reply
        server.call("process/terminate", {"processId": "a"})
        server.story("a")
        server.must_start("c", "exit 0")
        assert server.story("c").code == 0


# The server itself


@case
def its_limits_are_one_line_on_stderr():
    with Server("--processes", "7") as server:
        assert server.end() == 0
        server.threads[1].join(LONGEST)
        assert len(server.errors) == 1 and "processes=7" in server.errors[0], server.errors


@case
def sigterm_ends_it_and_its_children_without_input():
    with Server() as server:
        server.open()
        server.must_start("p", "echo $$; exec sleep 1000")
        story = server.hear("p", b"\n")
        server.child.send_signal(signal.SIGTERM)
        assert server.child.wait(LONGEST) == 0
        assert server.story("p", story).code == 143
        assert not runs(story.stdout)


@case
def a_client_that_stops_listening_is_a_clean_end():
    command = [os.environ["PLIMSOLL_BIN"], "exec-server", "--listen", "stdio"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        child.stdout.close()
        child.stdin.write(b'{"id":1,"method":"initialize","params":{"clientName":"p"}}\n')
        child.stdin.flush()
        assert child.wait(LONGEST) == 0
    finally:
        child.kill()
        child.wait()
        child.stdin.close()


def main():
    passed = failed = 0
    for function in CASES:
        name = function.__name__.replace("_", " ")
        try:
            function()
        except Exception:  # noqa: BLE001: whatever went wrong in a case, the others are run
            failed += 1
            print(f"FAILED {name}")
            traceback.print_exc(file=sys.stdout)
        else:
            passed += 1
            print(f"ok     {name}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
