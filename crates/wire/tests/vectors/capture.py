#!/usr/bin/env python3
"""Captures the wire vectors beside this file from real servers, driven by a real libpq.

    [LOGINS_ONLY=1] capture.py LIBPQ.so HOST PORT OUTPUT.txt [libpq connection options]

Owns nothing that the tests need: they read the committed text files. Each message is decoded here once more,
independently of weir-wire, and the tests compare weir-wire's typed result with that text.
The server must know the roles plainuser, md5user and scramuser (password: secret) with the pg_hba methods of
their names, and must trust postgres, for replication too.
"""
import ctypes, os, socket, struct, sys, threading, time

LIBPQ, HOST, PORT, OUTPUT = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
OPTIONS = " ".join(sys.argv[5:])

FRONTEND = {"B": "Bind", "C": "Close", "d": "CopyData", "c": "CopyDone", "f": "CopyFail", "D": "Describe", "E": "Execute",
            "H": "Flush", "F": "FunctionCall", "P": "Parse", "p": "Password", "Q": "Query", "S": "Sync", "X": "Terminate"}
BACKEND = {"R": "Authentication", "K": "BackendKeyData", "2": "BindComplete", "3": "CloseComplete", "C": "CommandComplete",
           "W": "CopyBothResponse", "d": "CopyData", "c": "CopyDone", "G": "CopyInResponse", "H": "CopyOutResponse",
           "D": "DataRow", "I": "EmptyQueryResponse", "E": "ErrorResponse", "V": "FunctionCallResponse",
           "v": "NegotiateProtocolVersion", "n": "NoData", "N": "NoticeResponse", "A": "NotificationResponse",
           "t": "ParameterDescription", "S": "ParameterStatus", "1": "ParseComplete", "s": "PortalSuspended",
           "Z": "ReadyForQuery", "T": "RowDescription"}


# What the bytes mean, told without weir-wire.

def quoted(data):
    out = '"'
    for byte in data:
        if byte in b'"\\':
            out += "\\" + chr(byte)
        elif 0x20 <= byte < 0x7f:
            out += chr(byte)
        else:
            out += "\\x%02x" % byte
    return out + '"'


def cstr(body):
    text, _, rest = body.partition(b"\0")
    return text, rest


def strings(body):
    out = []
    while True:
        text, body = cstr(body)
        if not text:
            assert body == b"", body
            return out
        out.append(text)


def version_text(number):
    return "%d.%d" % (number >> 16, number & 0xffff)


def decode_startup(body):
    (code,) = struct.unpack("!I", body[:4])
    if code == 80877102:
        return "CancelRequest", " %d %s" % (struct.unpack("!I", body[4:8])[0], body[8:].hex())
    if code == 80877103:
        return "SSLRequest", ""
    if code == 80877104:
        return "GSSENCRequest", ""
    pairs = strings(body[4:])
    text = " ".join("%s=%s" % (quoted(name), quoted(value)) for name, value in zip(pairs[::2], pairs[1::2]))
    return "Startup", " %s %s" % (version_text(code), text)


def decode_frontend(tag, body, before):
    name = FRONTEND[tag]
    if name == "Parse":
        statement, definition = cstr(body)
        return name, " %s %s" % (quoted(statement), quoted(definition))
    if name == "Bind":
        portal, rest = cstr(body)
        return name, " %s %s" % (quoted(portal), quoted(cstr(rest)[0]))
    if name in ("Describe", "Close"):
        return name, " %s %s" % ({"S": "statement", "P": "portal"}[chr(body[0])], quoted(body[1:-1]))
    if name == "Query":
        return name, " " + quoted(body[:-1])
    if name == "Password":
        if before == 10:
            mechanism, rest = cstr(body)
            return "SASLInitialResponse", " %s %s" % (mechanism.decode(), quoted(rest[4:]))
        if before == 11:
            return "SASLResponse", " " + quoted(body)
        return "PasswordMessage", " " + quoted(body[:-1])
    return name, " %d bytes" % len(body)


def decode_backend(tag, body):
    name = BACKEND[tag]
    if name == "Authentication":
        (code,) = struct.unpack("!I", body[:4])
        rest = body[4:]
        kind = {0: "Ok", 3: "CleartextPassword", 5: "MD5Password", 10: "SASL", 11: "SASLContinue", 12: "SASLFinal"}[code]
        detail = {5: lambda: " " + rest.hex(), 10: lambda: " " + " ".join(m.decode() for m in strings(rest)),
                  11: lambda: " " + quoted(rest), 12: lambda: " " + quoted(rest)}.get(code, lambda: "")()
        return "Authentication" + kind, detail
    if name == "BackendKeyData":
        return name, " %d %s" % (struct.unpack("!I", body[:4])[0], body[4:].hex())
    if name == "ParameterStatus":
        key, rest = cstr(body)
        return name, " %s %s" % (quoted(key), quoted(rest[:-1]))
    if name == "ReadyForQuery":
        return name, {"I": " idle", "T": " transaction", "E": " failed"}[body.decode()]
    if name == "NegotiateProtocolVersion":
        version, count = struct.unpack("!II", body[:8])
        options = strings(body[8:] + b"\0")
        assert len(options) == count
        return name, " " + " ".join([version_text(version)] + [quoted(option) for option in options])
    if name == "CommandComplete":
        return name, " " + quoted(body[:-1])
    if name in ("ErrorResponse", "NoticeResponse"):
        fields = {chr(field[0]): field[1:] for field in strings(body)}
        return name, " %s %s %s %s" % (fields["V"].decode(), fields["C"].decode(), quoted(fields["M"]), quoted(fields["R"]))
    return name, " %d bytes" % len(body)


# A relay that writes down each message.

class Recorder:
    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.lines, self.seen, self.story, self.count = [], set(), "", 0
        self.lock = threading.Lock()
        self.before = None
        threading.Thread(target=self.accept, daemon=True).start()

    def tell(self, story):
        self.story, self.count = story, 0

    def record(self, side, data, name, detail):
        with self.lock:
            # WAL that a replication connection streams is long and says nothing new.
            if (side, data) in self.seen or len(data) > 400:
                return
            self.seen.add((side, data))
            self.count += 1
            self.lines += ["%s.%02d %s" % (self.story, self.count, side), data.hex(), name + detail, ""]

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection((HOST, PORT))
            for source, target, pump in ((client, server, self.frontend), (server, client, self.backend)):
                threading.Thread(target=pump, args=(source, target), daemon=True).start()

    def frontend(self, source, target):
        try:
            self.frontend_messages(source, target)
        except OSError:
            pass  # The server was the first to go.

    def frontend_messages(self, source, target):
        startup, buffer = True, b""
        while data := source.recv(65536):
            buffer += data
            while True:
                head = 0 if startup else 1
                if len(buffer) < head + 4:
                    break
                length = head + struct.unpack("!I", buffer[head:head + 4])[0]
                if len(buffer) < length:
                    break
                message, buffer = buffer[:length], buffer[length:]
                if startup:
                    name, detail = decode_startup(message[4:])
                    startup = name in ("SSLRequest", "GSSENCRequest")
                else:
                    name, detail = decode_frontend(chr(message[0]), message[5:], self.before)
                self.record("frontend", message, name, detail)
                target.sendall(message)
        target.shutdown(socket.SHUT_WR)

    def backend(self, source, target):
        buffer = b""
        while data := source.recv(65536):
            buffer += data
            if buffer in (b"N", b"S"):
                target.sendall(buffer)
                buffer = b""
            while len(buffer) >= 5 and len(buffer) >= (length := 1 + struct.unpack("!I", buffer[1:5])[0]):
                message, buffer = buffer[:length], buffer[length:]
                if message[:1] == b"R":
                    (self.before,) = struct.unpack("!I", message[5:9])
                self.record("backend", message, *decode_backend(chr(message[0]), message[5:]))
                target.sendall(message)
        target.close()


# Stories.

pq = ctypes.CDLL(LIBPQ)
POINTERS = ("PQconnectdb", "PQexec", "PQprepare", "PQexecPrepared", "PQexecParams", "PQdescribePrepared", "PQgetResult",
            "PQgetCancel", "PQfn", "PQdescribePortal")
for function in POINTERS:
    getattr(pq, function).restype = ctypes.c_void_p
pq.PQerrorMessage.restype = ctypes.c_char_p
recorder = Recorder()


def connect(user="postgres", extra=""):
    text = "host=127.0.0.1 port=%d user=%s password=secret dbname=postgres connect_timeout=5 sslmode=disable %s %s" % (
        recorder.port, user, OPTIONS, extra)
    conn = ctypes.c_void_p(pq.PQconnectdb(text.encode()))
    if pq.PQstatus(conn) != 0:
        print("connect:", pq.PQerrorMessage(conn).decode().strip())
    return conn


def finish(conn):
    pq.PQfinish(conn)
    time.sleep(0.2)  # Its goodbye belongs to this story, not to the next.


def execute(conn, sql):
    pq.PQexec(conn, sql)


def drain(conn):
    while pq.PQgetResult(conn):
        pass


def pipeline(conn):
    pq.PQenterPipelineMode(conn)
    for sql in (b"select 1", b"select 1/0", b"select 2"):
        pq.PQsendQueryParams(conn, sql, 0, None, None, None, None, 0)
    pq.PQsendFlushRequest(conn)
    pq.PQpipelineSync(conn)
    for _ in range(8):
        pq.PQgetResult(conn)
    pq.PQexitPipelineMode(conn)


def copies(conn):
    execute(conn, b"create temp table t (a int)")
    execute(conn, b"copy t from stdin")
    pq.PQputCopyData(conn, b"1\n2\n", 4)
    pq.PQputCopyEnd(conn, None)
    drain(conn)
    execute(conn, b"copy t from stdin")
    pq.PQputCopyEnd(conn, b"changed my mind")
    drain(conn)
    execute(conn, b"copy t to stdout")
    buffer = ctypes.c_char_p()
    while pq.PQgetCopyData(conn, ctypes.byref(buffer), 0) > 0:
        pass
    drain(conn)


def raw(*messages):
    """What libpq never sends."""
    link = socket.create_connection(("127.0.0.1", recorder.port))
    link.settimeout(0.5)
    for message in messages:
        link.sendall(message)
        try:
            while link.recv(65536):
                pass
        except TimeoutError:
            pass
    link.close()


def packet(tag, body):
    return tag + struct.pack("!I", len(body) + 4) + body


def startup(version, *words):
    return packet(b"", struct.pack("!I", version) + b"".join(word + b"\0" for word in words) + b"\0")


def main():
    for user in ("plainuser", "md5user", "scramuser", "nobody"):
        recorder.tell("login_" + user)
        finish(connect(user))
    recorder.tell("login_wrong_password")
    finish(connect("scramuser", "password=wrong"))
    recorder.tell("login_wrong_database")
    finish(connect("postgres", "dbname=missing"))
    if "LOGINS_ONLY" in os.environ:
        return save()
    recorder.tell("login_options")
    finish(connect("postgres", "application_name='a \\'b\\'' options='-c geqo=off -c search_path=x'"))
    recorder.tell("ssl_request")
    raw(packet(b"", struct.pack("!I", 80877103)))
    recorder.tell("gssenc_request")
    raw(packet(b"", struct.pack("!I", 80877104)))
    recorder.tell("newer_version_and_option")
    raw(startup(0x00030009, b"user", b"postgres", b"_pq_.unheard_of", b"1"), packet(b"X", b""))

    conn = connect()
    recorder.tell("simple")
    for sql in (b"select 1 as one, null as two", b"", b"begin; select 1; commit", b"begin", b"select 1/0", b"rollback",
                b"set application_name to caf\xc3\xa9", b"set time zone 'UTC'", b"do $$begin raise notice 'hello'; end$$",
                b"listen channel", b"notify channel, 'payload'", b"select repeat('x', 300)"):
        execute(conn, sql)
    recorder.tell("extended")
    pq.PQprepare(conn, b"s1", b"select $1::int4 + 1", 1, (ctypes.c_uint * 1)(23))
    pq.PQexecPrepared(conn, b"s1", 1, (ctypes.c_char_p * 1)(b"41"), None, None, 1)
    pq.PQprepare(conn, b"s1", b"select 2", 0, None)
    pq.PQdescribePrepared(conn, b"s1")
    pq.PQdescribePrepared(conn, b"missing")
    pq.PQexecParams(conn, b"set work_mem to '1MB'", 0, None, None, None, None, 0)
    if hasattr(pq, "PQclosePrepared"):
        pq.PQclosePrepared(conn, b"s1")
        pq.PQclosePortal(conn, b"p1")
    recorder.tell("pipeline")
    pipeline(conn)
    recorder.tell("copy")
    copies(conn)
    recorder.tell("function_call")
    length = ctypes.c_int()
    result = ctypes.create_string_buffer(8)
    pq.PQfn(conn, 1397, result, ctypes.byref(length), 1, (ctypes.c_char * 16)(4, 0, 0, 0, 1, 0, 0, 0, 5), 1)  # int4abs
    recorder.tell("cancel")
    error = ctypes.create_string_buffer(256)
    cancel = ctypes.c_void_p(pq.PQgetCancel(conn))
    pq.PQsendQuery(conn, b"select pg_sleep(30)")
    threading.Timer(0.5, lambda: pq.PQcancel(cancel, error, 256)).start()
    drain(conn)
    finish(conn)

    recorder.tell("suspended_portal")
    raw(startup(0x00030000, b"user", b"postgres"),
        packet(b"P", b"p\0select generate_series(1, 3)\0\0\0") + packet(b"B", b"c\0p\0\0\0\0\0\0\0") + packet(b"D", b"Pc\0")
        + packet(b"E", b"c\0\0\0\0\2") + packet(b"H", b""), packet(b"C", b"Pc\0") + packet(b"C", b"Sp\0") + packet(b"S", b""),
        packet(b"P", b"\0\0\0\0") + packet(b"B", b"\0\0\0\0\0\0\0\0") + packet(b"E", b"\0\0\0\0\0") + packet(b"S", b""),
        packet(b"X", b""))
    recorder.tell("replication")
    conn = connect("postgres", "replication=database dbname=postgres")
    execute(conn, b"IDENTIFY_SYSTEM")
    execute(conn, b"CREATE_REPLICATION_SLOT wire TEMPORARY PHYSICAL")
    execute(conn, b"START_REPLICATION SLOT wire PHYSICAL 0/1000000")
    finish(conn)

    save()


def save():
    with open(OUTPUT, "w") as file:
        file.write("# PostgreSQL %s, libpq %d. By capture.py: name and sender, bytes, meaning.\n\n" % (
            VERSION, pq.PQlibVersion()))
        file.write("\n".join(recorder.lines))


conn = connect()
pq.PQparameterStatus.restype = ctypes.c_char_p
VERSION = pq.PQparameterStatus(conn, b"server_version").decode()
finish(conn)
recorder.lines, recorder.seen = [], set()
main()
