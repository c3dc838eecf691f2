#!/usr/bin/env python3
"""test.py BIN_DIR LIBFILE [FUZZ_COMMANDS [SEED]]

Starts a PostgreSQL cluster of its own with weir.so preloaded in every session
and compares what the module reports with the truth as SQL tells it."""
import collections, json, os, random, re, shutil, socket, struct, subprocess, sys, tempfile

BIN, LIB = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
FUZZ = int(sys.argv[3]) if len(sys.argv) > 3 else 3000
SEED = int(sys.argv[4]) if len(sys.argv) > 4 else 1
HERE = os.path.dirname(os.path.abspath(__file__))
NOBODY = ['setpriv', '--reuid=nobody', '--regid=nogroup', '--clear-groups'] if os.getuid() == 0 else []

# ---------------------------------------------------------------- protocol
def msg(t, b=b''): return t.encode() + struct.pack('!I', len(b) + 4) + b
def Z(s): return (s.encode() if isinstance(s, str) else s) + b'\0'
def Q(s): return msg('Q', Z(s))
def P(name, sql): return msg('P', Z(name) + Z(sql) + struct.pack('!H', 0))
def B(stmt=''): return msg('B', Z('') + Z(stmt) + struct.pack('!HHH', 0, 0, 0))
E, S = msg('E', Z('') + struct.pack('!I', 0)), msg('S')
def ext(sql): return P('', sql) + B() + E

def unescape(s): return re.sub(r'\\([0-7]{3})', lambda m: chr(int(m.group(1), 8)), s).encode('latin1')

class Conn:
    """A client that keeps the picture of the session that the reports give"""
    def __init__(s, user='postgres', on=True, options=None):
        s.buf, s.status, s.words, s.set, s.native, s.nbytes, s.reports, s.log, s.read = b'', None, None, {}, set(), 0, 0, [], 0
        s.listen, s.heard, s.asks = None, set(), 0      # heard: as a pooler has it that listens elsewhere
        s.sock = socket.create_connection(('127.0.0.1', PORT)); s.sock.settimeout(30)
        s.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        p = Z('user') + Z(user) + Z('database') + Z('postgres')
        if on: p += Z('weir.report') + Z('on')
        if options: p += Z('options') + Z(options)
        p = struct.pack('!I', 196608) + p + b'\0'
        s.sock.sendall(struct.pack('!I', len(p) + 4) + p)
        s.ready()
    def one(s):
        while len(s.buf) < 5 or len(s.buf) < 1 + struct.unpack('!I', s.buf[1:5])[0]:
            d = s.sock.recv(65536)
            if not d: raise Exception('server closed the connection after ' + repr(s.log[-5:]))
            s.buf += d; s.nbytes += len(d)
        n = 1 + struct.unpack('!I', s.buf[1:5])[0]
        t, b, s.buf = chr(s.buf[0]), s.buf[5:n], s.buf[n:]
        if t == 'Z': s.status = b.decode()
        if t == 'S':
            k, v = b.split(b'\0')[:2]; k = k.decode(); v = v.decode('ascii') if k.startswith('weir.') else v
            assert b.count(b'\0') == 2
            if k.startswith('weir.') and k not in ('weir.read', 'weir.asks'): s.reports += 1
            if k == 'weir.session': s.words = v
            elif k == 'weir.set': n, v = v.split('=', 1); s.set[n.lower()] = unescape(v)
            elif k == 'weir.reset': del s.set[v.lower()]
            elif k == 'weir.read': s.read += 1
            elif k == 'weir.asks': s.asks += 1
            elif k in ('weir.listen', 'weir.unlisten', 'weir.unlisten_but'):
                names = {unescape(c) for c in v.split()}
                change = {'weir.listen': set.union, 'weir.unlisten': set.difference, 'weir.unlisten_but': set.intersection}[k]
                s.listen, s.heard = change(s.listen or set(), names), change(s.heard, names)
            else: s.native.add(k)
        return t, b
    def ready(s, n=1):
        out = []
        while n:
            out.append(s.one()); n -= out[-1][0] == 'Z'
        return out
    def x(s, b, n=1):
        if TRUTH.encode() not in b: s.log.append(b)
        s.sock.sendall(b); return s.ready(n)
    def q(s, sql): return s.x(Q(sql))
    def rows(s, sql):
        r = s.q(sql); e = [m for m in r if m[0] == 'E']
        if e: raise Exception(sql + ': ' + repr(e))
        return [row(m[1]) for m in r if m[0] == 'D']
    def close(s): s.sock.close()
    def lasting(s):
        m = re.search(r'lasting=(\d+)', s.words); return int(m.group(1)) if m else 0

def row(b):
    n, o, r = struct.unpack('!H', b[:2])[0], 2, []
    for _ in range(n):
        l = struct.unpack('!i', b[o:o + 4])[0]; o += 4
        r.append(None if l < 0 else b[o:o + l]); o += max(l, 0)
    return r

# ----------------------------------------------------------------- cluster
SETUP = '''
CREATE ROLE r1; CREATE ROLE r2; CREATE ROLE u1 LOGIN; GRANT pg_read_all_settings TO r1, r2, u1;
CREATE FUNCTION run(text) RETURNS int LANGUAGE plpgsql AS $$BEGIN EXECUTE $1; RETURN 1; END$$;
CREATE FUNCTION run_err(text) RETURNS int LANGUAGE plpgsql AS $$BEGIN EXECUTE $1; RETURN 1/0; END$$;
CREATE FUNCTION run_exc(text) RETURNS int LANGUAGE plpgsql AS $$BEGIN BEGIN EXECUTE $1; PERFORM 1/0; EXCEPTION WHEN OTHERS THEN NULL; END; RETURN 1; END$$;
CREATE FUNCTION run_keep(text) RETURNS int LANGUAGE plpgsql AS $$BEGIN BEGIN EXECUTE $1; EXCEPTION WHEN OTHERS THEN NULL; END; RETURN 1; END$$;
CREATE FUNCTION run_def(text) RETURNS int LANGUAGE plpgsql SECURITY DEFINER AS $$BEGIN EXECUTE $1; RETURN 1; END$$;
CREATE FUNCTION run_set(text) RETURNS int LANGUAGE plpgsql SET enable_sort = off SET work_mem = '77kB' AS $$BEGIN EXECUTE $1; RETURN 1; END$$;
CREATE PROCEDURE p_commit(text) LANGUAGE plpgsql AS $$BEGIN EXECUTE $1; COMMIT; PERFORM 1; END$$;
CREATE PROCEDURE p_rollback(text) LANGUAGE plpgsql AS $$BEGIN EXECUTE $1; ROLLBACK; PERFORM 1; END$$;
CREATE PROCEDURE p_commit_err(text) LANGUAGE plpgsql AS $$BEGIN EXECUTE $1; COMMIT; PERFORM 1/0; END$$;
CREATE PROCEDURE p_after(text) LANGUAGE plpgsql AS $$BEGIN COMMIT; EXECUTE $1; END$$;
CREATE PROCEDURE p_after_err(text) LANGUAGE plpgsql AS $$BEGIN COMMIT; EXECUTE $1; PERFORM 1/0; END$$;
CREATE TABLE trg (s text); CREATE TABLE dfr (s text); GRANT ALL ON trg, dfr TO public;
CREATE FUNCTION trun() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN EXECUTE NEW.s; RETURN NEW; END$$;
CREATE TRIGGER t BEFORE INSERT ON trg FOR EACH ROW EXECUTE FUNCTION trun();
CREATE CONSTRAINT TRIGGER t AFTER INSERT ON dfr DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION trun();
CREATE FUNCTION fsql(text) RETURNS text LANGUAGE sql AS $$SELECT set_config('a.b', $1, false)$$;
CREATE OPERATOR ~~~> (FUNCTION = fsql, RIGHTARG = text);
GRANT ALL ON SCHEMA public TO public; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO public;
'''
def free_port():
    k = socket.socket(); k.bind(('127.0.0.1', 0)); p = k.getsockname()[1]; k.close(); return p
class Cluster:
    def __init__(s, conf=''):
        global PORT
        s.dir = tempfile.mkdtemp(prefix='run-', dir=HERE); os.chmod(s.dir, 0o777); PORT = s.port = free_port()
        run = lambda *a: subprocess.run(NOBODY + list(a), cwd=s.dir, check=True, stdout=subprocess.DEVNULL)
        run(BIN + '/initdb', '-D', s.dir + '/d', '-U', 'postgres', '-A', 'trust', '-N', '-E', 'UTF8', '--locale=C')
        with open(s.dir + '/d/postgresql.conf', 'a') as f:
            f.write("port=%d\nlisten_addresses='127.0.0.1'\nunix_socket_directories=''\nfsync=off\nwal_level=logical\nlog_min_messages=warning\n" % s.port)
            f.write("max_prepared_transactions=5\n" + (conf or "session_preload_libraries='%s'\n" % LIB))
        s.run = run; s.start()
    def start(s): s.run(BIN + '/pg_ctl', '-D', s.dir + '/d', '-w', '-l', s.dir + '/log', 'start')
    def stop(s): s.run(BIN + '/pg_ctl', '-D', s.dir + '/d', '-m', 'fast', '-w', 'stop')
    def end(s): s.stop(); shutil.rmtree(s.dir)

# ------------------------------------------------------------------- truth
CUSTOM = ['a.b', 'a.c', 'x.y', 'plpgsql.nope']
SECRET = {'dynamic_library_path', 'session_preload_libraries'}
UNTOLD = {'transaction_isolation', 'transaction_read_only', 'transaction_deferrable', 'seed', 'session_authorization', 'is_superuser', 'weir.report'}
TRUTH = '''SELECT (SELECT json_object_agg(name, setting) FROM pg_settings WHERE source = 'session'), current_setting('role'),
 EXISTS(SELECT 1 FROM pg_class WHERE relnamespace = pg_my_temp_schema()) OR EXISTS(SELECT 1 FROM pg_proc WHERE pronamespace = pg_my_temp_schema()) OR EXISTS(SELECT 1 FROM pg_type WHERE typnamespace = pg_my_temp_schema()),
 EXISTS(SELECT 1 FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'),
 EXISTS(SELECT 1 FROM pg_listening_channels()), EXISTS(SELECT 1 FROM pg_cursors WHERE is_holdable),
 EXISTS(SELECT 1 FROM pg_prepared_statements WHERE from_sql), (SELECT json_agg(c) FROM pg_listening_channels() c), ''' + ', '.join("current_setting('%s', true)" % c for c in CUSTOM)
WORDS = ['temp', 'lock', 'listen', 'hold', 'prepare']
problems, counts = [], collections.Counter()
def same(a, b):
    if a == b: return True
    try: return abs(float(a) - float(b)) <= 1e-4 * abs(float(b))
    except ValueError: return False
def truth(c):
    """Differences between the reports and the session; leaves both alone"""
    words, told, n, diff = c.words, dict(c.set), c.reports, []
    r = c.rows(TRUTH)[0]
    if c.reports != n: diff.append('the truth query made a report: %s %s -> %s %s' % (words, told, c.words, c.set))
    if words is None: return ['no weir.session']
    settings = {k: v for k, v in json.loads(r[0] or '{}').items() if k not in c.native and k not in UNTOLD}
    secret = bool(SECRET & set(settings))
    want = [w for w, v in zip(WORDS, r[2:7]) if v == b't'] + ['unknown'] * secret
    got = [w for w in words.split() if not w.startswith('lasting=')]
    if want != got: diff.append('session: told %s, true %s' % (got, want))
    for k in SECRET: settings.pop(k, None)
    channels = {name.encode() for name in json.loads(r[7] or '[]')}
    if c.listen != channels: diff.append('channels: told %s, true %s' % (c.listen, channels))
    if c.heard != channels: diff.append('heard elsewhere: %s as told, true %s' % (c.heard, channels))
    custom = dict(zip(CUSTOM, r[8:]))
    for k, v in settings.items():
        counts['values'] += 1
        if k not in told: diff.append('%s not told, is %r' % (k, v))
        elif not same(told[k].decode(), v): diff.append('%s told %r is %r' % (k, told[k], v))
    for k, v in custom.items():
        if (told.get(k, b'') or None) != (v or None) and k not in settings: diff.append('%s told %r is %r' % (k, told.get(k), v))
        counts['values'] += v is not None
    if told.get('role', b'none') != r[1]: diff.append('role told %r is %r' % (told.get('role'), r[1]))
    for k in told:
        if k not in settings and k not in custom and k != 'role': diff.append('%s told, not set' % k)
    return diff
def check(c, what):
    counts['compared'] += 1
    d = truth(c)
    if d:
        problems.append((what, d))
        if len(problems) < 15: print('DIFFERENT', what, d, flush=True)
        elif len(problems) > 200: sys.exit('too many problems')

# ------------------------------------------------------------ kinds, ways
def dq(s): return '$q$' + s + '$q$'
# kind: (do it, [undo it ...])
KINDS = {
 'int': ("SET work_mem = '8MB'", ['RESET work_mem', 'SET work_mem TO DEFAULT', 'RESET ALL', "SET LOCAL work_mem = '1MB'"]),
 'bool': ('SET enable_seqscan = off', ['SET enable_seqscan = on', 'RESET enable_seqscan']),
 'real': ('SET random_page_cost = 1.2345678901234567', ['RESET random_page_cost']),
 'enum': ("SET bytea_output = 'escape'", ['RESET bytea_output']),
 'enum2': ("SET constraint_exclusion = 'true'", ['RESET ALL']),
 'string': ("SET search_path = 'a b', \"C\\d\", \"ü=\n\"", ['RESET search_path', "SET search_path = ''"]),
 'time': ("SET statement_timeout = '1min'", ['SET statement_timeout = 0', 'RESET statement_timeout']),
 'set_config': ("SELECT set_config('work_mem', '9MB', false)", ["SELECT set_config('work_mem', NULL, false)", 'RESET ALL']),
 'set_config local': ("SELECT set_config('work_mem', '9MB', true)", ['RESET ALL']),
 'set local': ("SET LOCAL work_mem = '7MB'", ['RESET ALL']),
 'custom': ("SET a.b = 'x'", ['RESET a.b', "SET a.b = ''"]),
 'custom odd': ("SET a.c = E'a\\\\b\\n\\té=''\"'", ['RESET ALL']),
 'custom case': ('SET "X".y = 1', ['RESET x.y']),
 'custom local': ("SET LOCAL a.b = 'x'", ['RESET a.b']),
 'operator': ("SELECT ~~~> 'op'", ['RESET a.b']),
 'role': ('SET ROLE r1', ['RESET ROLE', 'SET ROLE NONE', 'SET ROLE r2']),
 'authorization': ('SET SESSION AUTHORIZATION u1', ['RESET SESSION AUTHORIZATION']),
 'role, authorization': ("SELECT set_config('role', 'r1', false), set_config('session_authorization', 'u1', false)", ['RESET SESSION AUTHORIZATION', 'RESET ROLE']),
 'characteristics': ('SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ', ['RESET default_transaction_isolation']),
 'native': ("SET application_name = 'x'", ['RESET application_name']),
 'secret': ("SET dynamic_library_path = '/x:$libdir'", ['RESET dynamic_library_path']),
 'lock': ('SELECT pg_advisory_lock(1)', ['SELECT pg_advisory_unlock(1)', 'SELECT pg_advisory_unlock_all()']),
 'lock shared': ('SELECT pg_advisory_lock_shared(7, 8)', ['SELECT pg_advisory_unlock_shared(7, 8)']),
 'lock try': ('SELECT pg_try_advisory_lock(1)', ['SELECT pg_advisory_unlock(1)']),
 'lock xact': ('SELECT pg_advisory_xact_lock(3)', ['SELECT pg_advisory_unlock_all()']),
 'listen': ('LISTEN ch', ['UNLISTEN ch', 'UNLISTEN *']),
 'listen odd': ('LISTEN "*"; LISTEN "a b"; LISTEN "ü\\"', ['UNLISTEN "a b"; UNLISTEN "*"', 'UNLISTEN *; LISTEN "a b"', 'LISTEN b; UNLISTEN b; UNLISTEN "ü\\"']),
 'hold': ('DECLARE cu CURSOR WITH HOLD FOR SELECT generate_series(1, 3)', ['CLOSE cu', 'CLOSE ALL']),
 'no hold': ('DECLARE cu CURSOR FOR SELECT 1', ['CLOSE ALL']),
 'prepare': ('PREPARE pr AS SELECT 1', ['DEALLOCATE pr', 'DEALLOCATE ALL']),
 'temp table': ('CREATE TEMP TABLE tt (a serial PRIMARY KEY, b text)', ['DROP TABLE tt', 'DISCARD TEMP']),
 'temp drop': ('CREATE TEMP TABLE tt (a int PRIMARY KEY, b text) ON COMMIT DROP', ['DROP TABLE tt']),
 'temp delete': ('CREATE TEMP TABLE tt ON COMMIT DELETE ROWS AS SELECT 1 AS a', ['DROP TABLE tt']),
 'temp into': ('SELECT 1 AS a INTO TEMP tt', ['DROP TABLE tt', 'DROP TABLE tt; CREATE TEMP TABLE t2 (a int) ON COMMIT DROP']),
 'temp view': ('CREATE TEMP VIEW tv AS SELECT 1', ['DROP VIEW tv']),
 'temp sequence': ('CREATE TEMP SEQUENCE ts', ['DROP SEQUENCE ts']),
 'temp function': ('CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS $$SELECT 1$$', ['DROP FUNCTION pg_temp.f()']),
 'temp type': ('CREATE TYPE pg_temp.ty AS (a int)', ['DROP TYPE pg_temp.ty']),
 'temp domain': ('CREATE DOMAIN pg_temp.ty AS int CHECK (VALUE > 0)', ['DROP DOMAIN pg_temp.ty', 'ALTER DOMAIN pg_temp.ty RENAME TO ty2']),
 'temp cluster': ('CREATE TEMP TABLE tt (a int PRIMARY KEY, b text); CLUSTER tt USING tt_pkey', ['TRUNCATE tt', 'ALTER TABLE tt ALTER a TYPE bigint', 'DROP TABLE tt']),
 'table': ('CREATE TABLE pt (a int)', ['DROP TABLE IF EXISTS pt']),
 'setseed': ('SELECT setseed(0.5)', ['SELECT 1']),
 'set seed': ('SET seed = 0.3', ['RESET ALL']),
 'load': ("LOAD 'plpgsql'", ['RESET ALL']),
 'nothing': ('SELECT 1', ['SELECT 1']),
}
LASTING = {'setseed', 'set seed', 'load'}
NO_SPI = {'load'}   # nothing here: EXECUTE takes any of them
# way: list of (bytes, number of ReadyForQuery)
WAYS = {
 'statement': lambda s: [(Q(s), 1)],
 'extended': lambda s: [(ext(s) + S, 1)],
 'named': lambda s: [(P('n1', s) + S, 1), (B('n1') + E + S, 1), (msg('C', b'S' + Z('n1')) + S, 1)],
 'two syncs': lambda s: [(ext(s) + S + ext('SELECT 1') + S, 2)],
 'two syncs after': lambda s: [(ext('SELECT 1') + S + ext(s) + S + S, 3)],
 'pipeline error': lambda s: [(ext(s) + ext('SELECT 1/0') + S, 1)],
 'multi': lambda s: [(Q('SELECT 1; %s; SELECT 2' % s), 1)],
 'multi error': lambda s: [(Q('%s; SELECT 1/0' % s), 1)],
 'behind error': lambda s: [(Q('SELECT 1/0; %s' % s), 1)],
 'multi block': lambda s: [(Q('BEGIN; %s; COMMIT' % s), 1)],
 'multi commit error': lambda s: [(Q('BEGIN; %s; COMMIT; SELECT 1/0' % s), 1)],
 'block': lambda s: [(Q('BEGIN'), 1), (Q(s), 1), (Q('COMMIT'), 1)],
 'block extended': lambda s: [(ext('BEGIN') + S, 1), (ext(s) + S, 1), (ext('COMMIT') + S, 1)],
 'rollback': lambda s: [(Q('BEGIN'), 1), (Q(s), 1), (Q('ROLLBACK'), 1)],
 'block error': lambda s: [(Q('BEGIN'), 1), (Q(s), 1), (Q('SELECT 1/0'), 1), (Q('ROLLBACK'), 1)],
 'block error commit': lambda s: [(Q('BEGIN'), 1), (Q(s), 1), (Q('SELECT 1/0'), 1), (Q('COMMIT'), 1)],
 'savepoint': lambda s: [(Q('BEGIN'), 1), (Q('SAVEPOINT a'), 1), (Q(s), 1), (Q('ROLLBACK TO a'), 1), (Q('COMMIT'), 1)],
 'savepoint error': lambda s: [(Q('BEGIN; SAVEPOINT a'), 1), (Q(s), 1), (Q('SELECT 1/0'), 1), (Q('ROLLBACK TO a'), 1), (Q('COMMIT'), 1)],
 'savepoint release': lambda s: [(Q('BEGIN'), 1), (Q('SAVEPOINT a'), 1), (Q(s), 1), (Q('RELEASE a'), 1), (Q('COMMIT'), 1)],
 'chain': lambda s: [(Q('BEGIN'), 1), (Q(s), 1), (Q('COMMIT AND CHAIN'), 1), (Q('ROLLBACK'), 1)],
 'twice': lambda s: [(Q(s), 1), (Q(s), 1)],
 'two phase': lambda s: [(Q('BEGIN'), 1), (Q(s), 1), (Q("PREPARE TRANSACTION 'x'"), 1), (Q("ROLLBACK PREPARED 'x'"), 1)],
 'do': lambda s: [(Q('DO $d$BEGIN EXECUTE %s; END$d$' % dq(s)), 1)],
 'do exception': lambda s: [(Q('DO $d$BEGIN BEGIN EXECUTE %s; PERFORM 1/0; EXCEPTION WHEN OTHERS THEN NULL; END; END$d$' % dq(s)), 1)],
 'do commit': lambda s: [(Q('DO $d$BEGIN EXECUTE %s; COMMIT; PERFORM 1; END$d$' % dq(s)), 1)],
 'do commit error': lambda s: [(Q('DO $d$BEGIN EXECUTE %s; COMMIT; PERFORM 1/0; END$d$' % dq(s)), 1)],
}
for f in ('run', 'run_err', 'run_exc', 'run_keep', 'run_def', 'run_set'):
    WAYS[f] = lambda s, f=f: [(Q('SELECT public.%s(%s)' % (f, dq(s))), 1)]
for f in ('p_commit', 'p_rollback', 'p_commit_err', 'p_after', 'p_after_err'):
    WAYS[f] = lambda s, f=f: [(Q('CALL public.%s(%s)' % (f, dq(s))), 1)]
WAYS['run extended block'] = lambda s: [(Q('BEGIN'), 1), (ext('SELECT public.run(%s)' % dq(s)) + S, 1), (Q('COMMIT'), 1)]
WAYS['trigger'] = lambda s: [(Q('INSERT INTO public.trg VALUES (%s)' % dq(s)), 1)]
WAYS['trigger rollback'] = lambda s: [(Q('BEGIN; INSERT INTO public.trg VALUES (%s); ROLLBACK' % dq(s)), 1)]
WAYS['deferred trigger'] = lambda s: [(Q('BEGIN'), 1), (Q('INSERT INTO public.dfr VALUES (%s)' % dq(s)), 1), (Q('COMMIT'), 1)]
WAYS['explain analyze'] = lambda s: [(Q('EXPLAIN ANALYZE ' + s), 1)]
UNDO_WAYS = ['statement', 'rollback', 'block', 'multi error', 'savepoint', 'do', 'run_exc', 'p_commit', 'p_rollback', 'extended']
NOT_RUN = {'behind error'}

def go(c, steps):
    for b, n in steps: c.x(b, n)
    if c.status != 'I': c.q('ROLLBACK')

def matrix():
    cases = 0
    for kind, (do, undos) in KINDS.items():
        c = Conn()
        for way, f in WAYS.items():
            before = c.lasting()
            go(c, f(do)); cases += 1; check(c, (kind, way))
            if kind in LASTING and way not in NOT_RUN and c.lasting() == before and not (kind != 'setseed' and way == 'explain analyze'):
                problems.append((kind, way, 'lasting is still %d' % before)); print(problems[-1])
            if kind not in LASTING and c.lasting() != before:
                problems.append((kind, way, 'lasting went up')); print(problems[-1])
            go(c, WAYS['statement'](undos[0])); check(c, (kind, way, 'undo', undos[0]))
            c.q('RESET SESSION AUTHORIZATION'); c.q('DISCARD ALL'); c.q('DROP TABLE IF EXISTS pt'); check(c, (kind, way, 'DISCARD ALL'))
            if [w for w in c.words.split() if 'lasting' not in w] or c.set: problems.append((kind, way, 'after DISCARD ALL', c.words, c.set)); print(problems[-1])
        for undo in undos + ['DISCARD ALL', 'RESET ALL', 'DISCARD PLANS']:
            for way in UNDO_WAYS:
                c.q(do); go(c, WAYS[way](undo)); cases += 1; check(c, (kind, 'undo', undo, way))
                c.q('RESET SESSION AUTHORIZATION'); c.q('DISCARD ALL'); c.q('DROP TABLE IF EXISTS pt')
        c.close()
    return cases

def fuzz(n, seed):
    rnd = random.Random(seed)
    pool = []
    for k, (do, undos) in KINDS.items(): pool += [do] * 2 + undos
    pool += ['DISCARD ALL', 'DISCARD TEMP', 'RESET ALL', 'CREATE TEMP TABLE t2 (a int) ON COMMIT DROP', 'DROP TABLE IF EXISTS tt', 'SELECT 1/0',
             "SET plpgsql.extra_warnings = 'all'", 'SET a.b = 2', "SET a.b TO 'z'; RESET a.b", 'PREPARE p2 AS SELECT 2', 'LISTEN c2', 'SET ROLE r2',
             'DECLARE c2 CURSOR WITH HOLD FOR SELECT 1/0', 'DECLARE c3 CURSOR WITH HOLD FOR SELECT 1', "SET work_mem = '64kB'", "SELECT set_config('a.' || chr(98), 'v', random() < 0.5)"]
    plain = ['BEGIN', 'COMMIT', 'ROLLBACK', 'SAVEPOINT a', 'ROLLBACK TO a', 'RELEASE a', 'BEGIN', 'COMMIT']
    done = 0; points = 0
    while done < n:
        c = Conn()
        for _ in range(min(200, n - done)):
            done += 1
            if rnd.random() < (.12 if c.status == 'I' else .35): steps = [(Q(rnd.choice(plain)), 1)]
            else: steps = WAYS[rnd.choice(list(WAYS))](rnd.choice(pool))
            if c.status == 'E' and rnd.random() < .6: steps = [(Q('ROLLBACK' if rnd.random() < .5 else 'ROLLBACK TO a'), 1)]
            for b, k in steps: c.x(b, k)
            if c.status == 'I':
                points += 1; check(c, ('fuzz', seed, done, c.log[-5:]))
                if done % 20 == 0: restore(c)
        if c.status != 'I': c.q('ROLLBACK')
        restore(c); c.close()
    return done, points

def restore(c):
    """Another session given the told values must show the same"""
    d = Conn(); told = dict(c.set); names = sorted(told, key=lambda n: n == 'role')
    quote = lambda v: "E'" + v.decode().replace('\\', '\\\\').replace("'", "\\'") + "'"
    for k in names:
        r = d.q("SELECT set_config('%s', %s, false)" % (k, quote(told[k])))
        if r[0][0] == 'E': problems.append(('restore', k, told[k], r)); print(problems[-1])
    if d.set != told: problems.append(('restore', told, d.set)); print(problems[-1])
    for k in names:
        counts['restored'] += 1
        a, b = (x.rows("SELECT current_setting('%s')" % k) for x in (c, d))
        if a != b: problems.append(('restore', k, a, b)); print(problems[-1])
    d.close()

def ok(cond, what):
    counts['other checks'] += 1
    if not cond: problems.append(what); print('FAILED', what, flush=True)

def reads():
    '''weir.read: which statements leave what parsing reads otherwise, by the end of their batch or before'''
    a = Conn()
    a.q('CREATE FUNCTION r_session() RETURNS text LANGUAGE plpgsql AS $f$ BEGIN RETURN set_config($q$array_nulls$q$, $q$off$q$, false); END $f$')
    a.q('CREATE FUNCTION r_local() RETURNS text LANGUAGE sql AS $f$ SELECT set_config($q$search_path$q$, $q$public$q$, true) $f$')
    a.q('CREATE FUNCTION r_own() RETURNS text LANGUAGE plpgsql SET array_nulls = off SET search_path = pg_catalog AS $f$ BEGIN PERFORM 1; RETURN $q$x$q$; END $f$')
    a.q('CREATE FUNCTION r_const() RETURNS int LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog AS $f$ BEGIN PERFORM 1; RETURN 1; END $f$')
    a.q('CREATE FUNCTION r_check(int) RETURNS bool LANGUAGE plpgsql AS $f$ BEGIN PERFORM set_config($q$array_nulls$q$, $q$off$q$, true); RETURN true; END $f$')
    a.q('CREATE DOMAIN r_domain AS int CHECK (r_check(VALUE))')
    a.q('CREATE TABLE r_t (x int); CREATE FUNCTION r_tr() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN SET LOCAL xmloption = document; RETURN NULL; END $f$')
    a.q('CREATE TRIGGER r AFTER INSERT ON r_t FOR EACH ROW EXECUTE FUNCTION r_tr()')
    for sql, tells in [('SELECT r_session()', 1), ('SELECT r_local()', 1), ('SELECT r_own()', 0), ('SELECT r_const()', 0), ('SELECT $q${1}$q$::r_domain[]', 1), ('INSERT INTO r_t VALUES (1)', 1), ('SET array_nulls = off', 1),
                       ('SET work_mem = 999', 0), ('SELECT set_config($q$app.x$q$, $q$1$q$, true)', 0), ('SET LOCAL xmlbinary = hex', 1), ('SET ROLE pg_monitor', 1),
                       ('DO $f$ BEGIN PERFORM r_local(); END $f$', 1), ('DO $f$ BEGIN PERFORM r_own(); END $f$', 0), ('UPDATE pg_settings SET setting = $q$off$q$ WHERE name = $q$array_nulls$q$', 1)]:
        for by, end in [(Q, ''), (lambda q: ext(q) + S, ''), (Q, 'COMMIT'), (Q, 'ROLLBACK')]:
            a.q('RESET ALL'); a.q('RESET ROLE'); a.read = 0
            if end: a.q('BEGIN')
            a.x(by(sql))
            # Without a block what is local is set, and warned of, and taken back.
            ok((a.read > 0) == bool(tells), ('weir.read', sql, end, a.read))
            if end:
                before = a.read; a.q('SELECT 1'); ok((a.read > before) == bool(tells), ('weir.read again', sql))
                a.q(end)
            a.q('SELECT 1'); a.read = 0; a.q('SELECT 1'); ok(a.read == 0, ('weir.read behind', sql, end))
    for end in ('COMMIT', 'ROLLBACK'):
        a.q('BEGIN'); a.read = 0
        a.x(P('', 'SELECT $q${1}$q$::r_domain[]') + S)
        ok(a.read > 0, ('weir.read at a Parse', end)); a.q(end)
    a.close()

def others(cl):
    a, b = Conn(), Conn(on=False)
    ok(a.words == '' and a.listen == set() and a.reports == 2 and not a.set, 'first report: an empty weir.listen and weir.session')
    ok(b.reports == 0, 'off: silent')
    n = {}
    for c in (a, b):
        c.nbytes = 0
        for i in range(1000): c.q('SELECT 1') if i % 2 else c.x(ext('SELECT 1') + S)
        n[c] = c.nbytes
    ok(n[a] == n[b], 'extra bytes where nothing changed: %d %d' % (n[a], n[b]))
    print('bytes of 1000 round trips: reporting %d, silent %d' % (n[a], n[b]))
    for s, _ in KINDS.values(): b.q(s)
    ok(b.reports == 0, 'never on: silent'); b.q('RESET SESSION AUTHORIZATION'); b.q('SET weir.report = on')
    check(b, 'switched on late'); ok('lasting=' in b.words, 'late: lasting'); b.close()
    r = a.x(ext("SET a.b = 1") + S + ext("SET a.b = 2") + S + ext("SELECT 1") + S, 3)
    k = ''.join(m[0] for m in r if m[0] in 'SZ'); ok(k == 'SZSZZ', 'two Syncs: ' + k)
    r = a.q("SELECT pg_advisory_lock(1); SET a.b = 3; RESET work_mem"); k = [m[1].split(b'\0')[0] for m in r if m[0] == 'S']
    ok(k == [b'weir.set', b'weir.session'], k)
    a.q('BEGIN'); n0 = a.reports; a.q('SET a.b = 4'); a.q('LISTEN q'); ok(a.reports == n0, 'block: silent'); a.q('SELECT x'); ok(a.reports == n0, 'error: silent')
    a.q('ROLLBACK'); ok(a.reports == n0, 'rolled back: silent'); a.q('DISCARD ALL')
    ok(a.words == '' and not a.set, 'DISCARD ALL'); a.q('SET weir.report = off'); a.q('SET a.b = 5'); ok(a.set.get('a.b') == b'5', 'sticky after SET off')
    a.q('DISCARD ALL'); a.q('SET a.b = 6'); ok(a.set.get('a.b') == b'6', 'sticky after DISCARD ALL'); a.close()
    c = Conn(options='-c work_mem=5MB -c a.b=7', on=True); ok(not c.set, 'startup options are not the session\'s'); c.close()
    c = Conn(options='-c weir.report=on', on=False); ok(c.words == '', 'by options'); c.close()
    c = Conn(on=False); c.q('BEGIN; SET weir.report = on; ROLLBACK'); ok(c.words == '', 'rolled back, sticky'); c.q('CREATE TEMP TABLE x (a int)'); ok(c.words == 'temp', 'temp'); c.close()
    c = Conn(on=False); c.q('CREATE TEMP TABLE x (a int)'); c.q('BEGIN; SET weir.report = on; ROLLBACK'); ok(c.words in ('unknown', 'temp'), c.words); c.q('SELECT 1'); check(c, 'late, rolled back'); c.close()
    c = Conn(on=False); c.q('PREPARE p AS SELECT 1'); c.q("SELECT set_config('weir.report', 'on', true)"); ok(c.words == 'prepare', 'late by set_config local'); c.close()
    c = Conn(); c.q("SET a.b = '%s'" % ('x' * 300000)); ok(len(c.set['a.b']) == 300000, 'long value'); check(c, 'long')
    c.q("SET client_encoding = 'LATIN1'"); c.q("SELECT length(set_config('a.b', chr(8364), false))"); ok(c.set['a.b'] == '€'.encode(), 'value the client encoding has not'); c.close()
    c = Conn(); c.q('CREATE EXTENSION IF NOT EXISTS dblink'); l = c.lasting()
    if c.rows("SELECT 1 FROM pg_extension WHERE extname = 'dblink'"):
        c.q("SELECT dblink_connect('k', 'host=127.0.0.1 port=%d user=postgres dbname=postgres')" % cl.port); ok(c.lasting() > l, 'dblink_connect'); l = c.lasting()
        c.q('SET ROLE u1'); c.q('SELECT dblink_get_connections()'); ok(c.lasting() == l, 'dblink other'); check(c, 'dblink')
    else: print('no dblink here')
    c.close(); c = Conn()
    for s in ("SELECT pg_create_physical_replication_slot('s', false, true)", "SELECT pg_replication_origin_create('o')", "SELECT pg_replication_origin_session_setup('o')",
              "SELECT %s('x', true)" % ('pg_backup_start' if int(c.rows('SHOW server_version_num')[0][0]) >= 150000 else 'pg_start_backup')):
        l = c.lasting(); r = c.q(s); ok(r[0][0] != 'E', (s, r)); ok(c.lasting() == l + ('create(' not in s), (s, c.words))
    c.close(); c = Conn()
    # a function in another language: make one out of plpgsql's handler
    c.q("CREATE LANGUAGE other HANDLER plpgsql_call_handler INLINE plpgsql_inline_handler"); c.q('CREATE FUNCTION oth() RETURNS int LANGUAGE other AS $$BEGIN RETURN 1; END$$')
    c.q('CREATE FUNCTION othd() RETURNS int LANGUAGE other SECURITY DEFINER SET work_mem = \'1MB\' AS $$BEGIN RETURN 1; END$$')
    for s in ('SELECT oth()', 'SELECT othd()', 'DO LANGUAGE other $$BEGIN END$$', "SELECT run('SELECT oth()')"): l = c.lasting(); r = c.q(s); ok(r[0][0] != 'E' and c.lasting() > l, (s, r, c.words))
    l = c.lasting(); c.q("SELECT run('SELECT 1'), lower('X')"); c.q('DO $$BEGIN END$$'); ok(c.lasting() == l, 'plpgsql is not lasting'); c.close()
    # a parallel query, and many of everything
    c = Conn(); c.q("SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET a.b = 1")
    c.q('CREATE TABLE big AS SELECT generate_series(1, 20000) AS a'); r = c.rows("SELECT count(*), sum(length(current_setting('a.b'))) FROM big"); ok(r[0][0] == b'20000', r)
    ok(b'Parallel' in repr(c.rows('EXPLAIN SELECT count(*) FROM big')).encode(), 'parallel plan'); check(c, 'parallel')
    for i in range(100): c.q('PREPARE m%d AS SELECT 1; SET a.n%d = %d; CREATE TEMP TABLE m%d (a int) ON COMMIT DROP' % (i, i, i, i))
    ok(c.set['a.n99'] == b'99' and len([k for k in c.set if k.startswith('a.n')]) == 100, 'many'); ok(c.words == 'prepare', c.words)
    c.q('BEGIN'); [c.q('CREATE TEMP TABLE m%d (a serial) ON COMMIT DROP' % i) for i in range(100)]; c.q('COMMIT'); ok(c.words == 'prepare', c.words)
    for i in range(100): c.q('DEALLOCATE m%d' % i)
    ok(c.words == '', c.words); c.close()
    c = Conn()      # fast-path calls: set_config(a.b, f, false), pg_advisory_lock(5)
    call = lambda oid, *args: msg('F', struct.pack('!IHHH', oid, 1, 1, len(args)) + b''.join(struct.pack('!I', len(a)) + a for a in args) + struct.pack('!H', 1))
    c.x(call(2078, b'a.b', b'f', b'\0')); ok(c.set == {'a.b': b'f'}, 'fast-path set_config'); c.x(call(2880, struct.pack('!q', 5))); ok(c.words == 'lock', 'fast-path lock'); check(c, 'fast path')
    l = c.lasting(); c.x(call(1599, struct.pack('!d', .5))); ok(c.lasting() > l, 'fast-path setseed'); c.close()
    c = Conn(); c.q('SET random_page_cost = 1.2345678901234567'); ok(c.set == {'random_page_cost': b'1.2345678901234567'}, c.set); c.q('RESET ALL')
    c.x(Q('PREPARE s AS SELECT 1; DEALLOCATE s') + P('s', 'SELECT 1') + S, 2); ok(c.words == '', 'protocol statement of a name once PREPAREd: ' + c.words); check(c, 'protocol statement')
    c.x(P('t', 'SELECT 1') + S); c.q('PREPARE t AS SELECT 1'); ok(c.words == '', 'failed PREPARE: ' + c.words); c.x(msg('C', b'S' + Z('t')) + S); c.q('PREPARE t AS SELECT 1'); ok(c.words == 'prepare', c.words)
    c.x(msg('C', b'S' + Z('t')) + S); ok(c.words == '', 'Close of a PREPAREd statement'); c.close()
    c = Conn()      # what another session may listen to for this one
    c.heard = {b'x', b'y', b'z', b'*'}; c.q('UNLISTEN x'); ok(c.heard == {b'y', b'z', b'*'}, 'left, not listened to')
    c.q("BEGIN; SAVEPOINT a; UNLISTEN y; ROLLBACK TO a; SELECT run('UNLISTEN z'); COMMIT"); ok(c.heard == {b'y', b'*'}, 'left in a function, not behind a savepoint')
    c.q('BEGIN; UNLISTEN y; LISTEN y; SAVEPOINT a; UNLISTEN *; LISTEN y; RELEASE a; COMMIT'); ok(c.heard == {b'y'}, 'all but one')
    c.q('BEGIN; UNLISTEN *; ROLLBACK'); c.q('UNLISTEN *; SELECT 1/0'); ok(c.heard == {b'y'}, 'rolled back'); check(c, 'channels'); c.q('UNLISTEN *'); check(c, 'no channels')
    r = c.q("BEGIN; UNLISTEN y; PREPARE TRANSACTION 'y'"); ok(r[-2][0] == 'E' and c.heard == set(), ('UNLISTEN, prepared', r)); c.q('ROLLBACK')
    n = 30000; c.q("DO $$BEGIN FOR i IN 1..%d LOOP EXECUTE 'UNLISTEN c' || i; END LOOP; LISTEN c7; END$$" % n); ok(c.heard == {b'c7'}, 'many left'); c.q('UNLISTEN *')
    c.q('CREATE FUNCTION asks() RETURNS SETOF text LANGUAGE internal AS $$pg_listening_channels$$')
    for s in ('SELECT pg_listening_channels()', 'SELECT * FROM asks()', "SELECT run('SELECT pg_listening_channels()')", 'SELECT count(*) FROM generate_series(1, 3), pg_listening_channels()', "SELECT pg_catalog.query_to_xml('SELECT pg_listening_channels()', true, true, '')"):
        n = c.asks; c.q(s); ok(c.asks == n + 1, (s, c.asks - n))
    n = c.asks; c.x(ext('SELECT pg_listening_channels()') + S); ok(c.asks == n + 1, 'asks, extended'); c.q("SELECT run('SELECT 1')"); ok(c.asks == n + 1, 'asks nothing'); c.close()
    c = Conn(user='u1'); c.q('CREATE TEMP TABLE x (a int)'); ok(c.words == 'temp', 'plain user'); c.close()
    c = Conn(on=False, options="-c session_preload_libraries="); c.q("LOAD '%s'" % LIB); c.q('SET weir.report = on')
    ok(c.words is not None and 'unknown' in c.words, ('LOAD late', c.words)) if c.words is not None else print('LOAD late: no report'); c.close()

def shared():
    """shared_preload_libraries, with weir.report from the file and not"""
    for conf in ('', 'weir.report = on\n'):
        cl = Cluster("shared_preload_libraries='%s'\n%s" % (LIB, conf))
        c = Conn(on=not conf); ok(c.words == '', 'shared preload: first report'); c.q('CREATE TEMP TABLE x (a int); SET a.b = 1; SET seed = 0.1'); check(c, 'shared')
        ok(c.words == 'temp lasting=1' or c.words.startswith('temp'), c.words); c.close()
        c = Conn(on=False); ok((c.reports > 0) == bool(conf), 'shared: %d' % c.reports); c.close()
        cl.end()

if __name__ == '__main__':
    cl = Cluster()
    c = Conn(on=False)
    for s in SETUP.strip().split('\n'): assert not [m for m in c.q(s) if m[0] == 'E'], s
    print(c.rows('SHOW server_version')[0][0].decode()); c.close()
    others(cl); reads(); print('others done', dict(counts), len(problems), flush=True)
    print('matrix cases', matrix(), dict(counts), 'problems', len(problems), flush=True)
    print('fuzz commands, idle points', fuzz(FUZZ, SEED), dict(counts), 'problems', len(problems), flush=True)
    log = open(cl.dir + '/log').read()
    ok('terminated by signal' not in log and 'PANIC' not in log and 'TRAP' not in log and 'leak' not in log.lower(), 'server log')
    cl.end(); shared()
    print('checks', dict(counts), 'PROBLEMS', len(problems))
    sys.exit(bool(problems))
