#!/usr/bin/env python3
"""test_builtin.py BIN_DIR LIBRARY WEIR [NAME...]

Starts PostgreSQL clusters of its own that have weir.so and the extension, and runs the pooler from within them: WEIR is its program.
NAME: only tests whose names have one of these in them."""
import contextlib, os, pwd, shutil, signal, subprocess, sys, time
from cluster import *

def test_three_statements():
    """Without a restart: from nothing to a pooled connection, and off again."""
    with server() as s:
        same('before', s.answers(), False)
        s.sql(['CREATE EXTENSION weir', 'ALTER SYSTEM SET weir.enabled = on', 'SELECT pg_reload_conf()'])
        until('the port answers', s.answers)
        same('a query', s.pooled('select current_user'), 'app')
        assert 'authentication failed' in s.fails(password='other')
        assert 'authentication failed' in s.fails(user='nobody_such')
        s.off()
        until('the child is gone', lambda: s.child() is None)
        for name in ('weir.ini', 'users.txt', 'pg_hba.conf', 'worker.lock'):
            same(f'mode of {name}', os.stat(s.path(f'weir/{name}')).st_mode & 0o7777, 0o600)
        same('mode of the folder', os.stat(s.path('weir')).st_mode & 0o7777, 0o700)

@contextlib.contextmanager
def load(s, clients=4, port=None, user='postgres'):
    """pgbench all the time; it must not see an error"""
    s.sql('CREATE TABLE IF NOT EXISTS load (a int); GRANT ALL ON load TO PUBLIC')
    script = f'{s.folder}/load.sql'
    with open(script, 'w') as file: file.write('begin;\ninsert into load values (1);\ncommit;\n')
    env = dict(os.environ, PGPASSWORD='secret')
    bench = subprocess.Popen([shutil.which('pgbench'), '-n', '-f', script, '-c', str(clients), '-T', '600', '-h', s.folder if port is None else '127.0.0.1', '-p', str(port or s.port),
                              '-U', user, 'postgres'], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
    until('the load runs', lambda: int(s.sql('select count(*) from load')) > 0 or bench.poll() is not None)
    try:
        yield bench
        if bench.poll() is not None: raise AssertionError(f'the load has ended: {bench.stdout.read()[-2000:]}')
    finally:
        bench.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired): bench.wait(10)
        bench.kill()

def test_on_and_off_under_load():
    times = int(os.environ.get('WEIR_TEST_TIMES', '20'))
    with server() as s:
        s.sql('CREATE EXTENSION weir')
        with load(s):
            for _ in range(times):
                s.on()
                same('a query', s.pooled(), '1')
                s.off()
        same('backends that are left', s.sql("select count(*) from pg_stat_activity where usename = 'app'"), '0')

def test_the_child_may_crash():
    """The server and direct clients hear nothing of it, and the port is back."""
    with server(PRELOADED) as s:
        s.on()
        with load(s):
            for kind in (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT):
                pid = until('there is a child', s.child)
                os.kill(pid, kind)
                # A handler of Rust's takes the first SIGSEGV for none of its own, and the next ends it
                with contextlib.suppress(ProcessLookupError): until('it ends', lambda: gone(pid) or os.kill(pid, kind))
                until('another child answers', lambda: s.child() not in (None, pid) and s.answers())
                same('a query', s.pooled(), '1')
        assert 'was ended by signal 9, and is started again in 0 ms' in s.logged() and 'crash of another server process' not in s.logged()

def test_the_worker_may_end():
    with server() as s:
        s.sql('CREATE EXTENSION weir')
        s.on()
        first = s.child()
        s.sql("select pg_terminate_backend(pid) from pg_stat_activity where backend_type = 'weir'")
        until('another child answers', lambda: s.child() not in (None, first) and s.answers())
        same('a query', s.pooled(), '1')

def test_the_server_may_crash():
    """A backend that crashes takes all others with it, and the worker; all come back."""
    with server() as s:
        s.sql('CREATE EXTENSION weir')
        s.on()
        first = s.child()
        os.kill(int(s.sql('select pid from pg_stat_activity where backend_type = \'checkpointer\'')), signal.SIGKILL)
        until('another child answers', lambda: s.child() not in (None, first) and s.answers())
        until('a query', lambda: s.fails() is None)

def gone(pid):
    with contextlib.suppress(OSError):
        with open(f'/proc/{pid}/stat') as file: return file.read().rsplit(')', 1)[1].split()[0] == 'Z'
    return True

def test_no_orphan():
    """The postmaster is killed: nothing is left."""
    for settings in ((PRELOADED,), ()):
        with server(*settings) as s:
            if not settings: s.sql('CREATE EXTENSION weir')
            s.on()
            pid = s.child()
            s.process.kill()
            s.process.wait()
            until('the child ends', lambda: gone(pid))
            same('the port', s.answers(), False)

def test_one_that_was_left_behind():
    """A child that did not heed its end keeps the port from nobody."""
    with server(PRELOADED) as s:
        s.on()
        pid = s.child()
        os.kill(pid, signal.SIGSTOP)
        worker = int(s.sql("select pid from pg_stat_activity where backend_type = 'weir'"))
        os.kill(s.process.pid, signal.SIGSTOP)
        os.kill(worker, signal.SIGKILL)
        s.process.kill()
        s.process.wait()
        same('it is there', gone(pid), False)
        s.start()
        until('another child answers', lambda: s.child() not in (None, pid) and s.answers())
        same('a query', s.pooled(), '1')
        same('the old one', gone(pid), True)

def test_comes_back_behind_a_restart():
    """With session_preload_libraries, by the first session."""
    with server() as s:
        s.sql(['CREATE EXTENSION weir', "ALTER SYSTEM SET session_preload_libraries = 'weir'"])
        s.on()
        s.stop()
        same('the port', s.answers(), False)
        s.start()
        until('the port answers', s.answers)
        same('a query', s.pooled(), '1')
        s.off()
        s.stop()
        s.start()
        # In each session, though up to 15 they are made only for one that asks
        same('parameters', s.sql("select count(*) > 90 from pg_settings where name like 'weir.%'"), 't')
        same('one of them', s.sql('show weir.pool_mode'), 'transaction')
        s.sql('ALTER DATABASE postgres SET weir.pool_mode = session')
        assert 'invalid value' in s.sql('ALTER ROLE app SET weir.pool_mode = 1', check=False).stdout
        same('workers', s.sql("select count(*) from pg_stat_activity where backend_type = 'weir'"), '0')
        s.on()
        same('a query', s.pooled(), '1')

def test_next_login_knows():
    with server(PRELOADED) as s:
        s.on()
        same('at first', s.fails(), None)
        s.sql("ALTER ROLE app PASSWORD 'other'")
        until('the old password', lambda: s.fails())
        same('the new one', s.fails(password='other'), None)
        s.sql("ALTER ROLE app PASSWORD 'secret' NOLOGIN")
        until('NOLOGIN', lambda: s.fails())
        s.sql('ALTER ROLE app LOGIN')
        until('LOGIN', lambda: s.fails() is None)
        s.sql("SET timezone = 'UTC'; ALTER ROLE app VALID UNTIL '2020-01-01'")
        until('expired', lambda: s.fails())
        s.sql("DO $$BEGIN EXECUTE format('ALTER ROLE app VALID UNTIL %L', now() + '5 s'); END$$")
        until('not yet', lambda: s.fails() is None)
        until('expired by itself', lambda: s.fails())
        s.sql("ALTER ROLE app VALID UNTIL 'infinity'")
        until('never', lambda: s.fails() is None)
        s.write('pg_hba.conf', HBA.replace('host all all 127.0.0.1/32', 'host all app 127.0.0.1/32 reject\nhost all all 127.0.0.1/32'))
        time.sleep(0.5)
        same('what is not loaded does not count', s.fails(), None)
        s.sql('SELECT pg_reload_conf()')
        assert 'rejected' in until('reject', lambda: s.fails())
        first = s.child()
        s.write('pg_hba.conf', HBA)
        until('a second', lambda: time.time() - os.stat(s.path('pg_hba.conf')).st_mtime > 2)
        s.write('pg_hba.conf', HBA)
        s.sql("select pg_terminate_backend(pid) from pg_stat_activity where backend_type = 'weir'")
        until('another child answers', lambda: s.child() not in (None, first) and s.answers())
        assert 'rejected' in s.fails(), 'nor for a new worker'
        s.write('pg_hba.conf', 'host all all 127.0.0.1/32 nonsense\n')
        s.sql('SELECT pg_reload_conf()')
        time.sleep(0.5)
        assert 'rejected' in s.fails(), 'what the server has not taken does not count'
        s.write('pg_hba.conf', HBA)
        s.sql('SELECT pg_reload_conf()')
        until('as before', lambda: s.fails() is None)
        s.sql('REVOKE CONNECT ON DATABASE postgres FROM PUBLIC')
        assert 'permission denied for database' in until('CONNECT', lambda: s.fails())
        s.sql('GRANT CONNECT ON DATABASE postgres TO PUBLIC')
        until('as before', lambda: s.fails() is None)
        s.sql("ALTER ROLE app SET work_mem = '5MB'")
        until('what is set for it', lambda: s.pooled('show work_mem') == '5MB')
        s.sql('DROP TABLE IF EXISTS load; DROP ROLE app')
        until('dropped', lambda: s.fails())
        for number in range(3):
            s.sql(f"DROP ROLE IF EXISTS app; CREATE ROLE app LOGIN PASSWORD 'p{number}'")
            until('another of that name', lambda: s.fails(password=f'p{number}') is None)
            same('is itself', s.pooled("select usesysid = (select oid from pg_roles where rolname = 'app') from pg_stat_activity where pid = pg_backend_pid()", password=f'p{number}'), 't')

def test_members():
    """Rules for the members of a role, where the pooler can ask the server about them."""
    own = 'nobody' if NOBODY else pwd.getpwuid(os.getuid()).pw_name
    local = f'local all postgres trust\nlocal all {own} peer\n'
    rules = 'local all all scram-sha-256\nhost all +staff 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 reject\n'
    with server(PRELOADED, hba=local + rules) as s:
        s.sql(f"CREATE ROLE staff; CREATE ROLE between IN ROLE staff; CREATE ROLE other LOGIN PASSWORD 'secret'; GRANT between TO app; CREATE ROLE {own} LOGIN SUPERUSER")
        s.on()
        s.sql('SELECT pg_reload_conf()')
        until('a member', lambda: s.fails() is None)
        assert 'rejected' in s.fails(user='other')
        s.sql('REVOKE between FROM app')
        assert 'rejected' in s.fails()
        assert 'rejected' in s.fails(db='weir lookups')
        s.sql('GRANT staff TO app')
        s.write('pg_hba.conf', 'local all postgres trust\n' + rules)
        s.sql('SELECT pg_reload_conf()')
        assert 'bouncer config error' in until('nobody can be asked', lambda: s.fails())

def test_names_as_they_come():
    with server(PRELOADED) as s:
        names = ['a b', 'a"b', "a'b", 'a;b', '%include x', 'a=b', '\u00fc', '*']
        for name in names:
            quoted = name.replace('"', '""')
            s.sql(f"""CREATE ROLE "{quoted}" LOGIN PASSWORD 'secret'""")
            s.sql(f'CREATE DATABASE "{quoted}"')
            s.sql(f"""ALTER DATABASE "{quoted}" SET weir.default_pool_size = 3""")
            s.sql(f"""ALTER ROLE "{quoted}" SET weir.pool_mode = 'session'""")
        s.sql("""CREATE ROLE "a\nb" LOGIN PASSWORD 'secret'""")
        s.on()
        for name in names:
            if name == '*':
                # It is not what all others have
                assert '"*" =' not in open(s.path('weir/weir.ini')).read()
                continue
            same(name, s.pooled('select current_user, current_database()', user=name, db="dbname='{}'".format(name.replace("'", "\\'"))), f'{name}|{name}')
        assert s.fails(user='a\nb') is not None
        same('all others', s.fails(), None)

def test_wrong_values():
    with server(PRELOADED) as s:
        for name, value, said in (('pool_mode', 'sometimes', 'invalid value for parameter'), ('default_pool_size', '-1', 'outside the valid range'), ('query_timeout', '1 parsec', 'invalid value'),
                                  ('listen_port', '70000', 'outside the valid range'), ('server_reset_query', "a' || E'\\nb", None), ('tcp_keepalive', 'perhaps', 'requires a Boolean'),
                                  ('unix_socket_mode', '01000', 'outside the valid range'), ('no_such_thing', '1', 'unrecognized' if MAJOR < 17 else None)):
            done = s.sql(f"ALTER SYSTEM SET weir.{name} = '{value}'", check=False)
            if said: assert done.returncode != 0 and said in done.stdout, (name, done.stdout)
        s.append('postgresql.conf', "weir.query_timeout = '1500ms'\nweir.no_such_thing = 1\nweir.pool_mode = 'often'\n")
        same('the file', s.sql("select name from pg_file_settings where error is not null and name like 'weir.%'"), 'weir.pool_mode')
        s.write('postgresql.conf', open(s.path('postgresql.conf')).read().replace("'often'", "'session'"))
        s.on()
        same('as it is written', s.sql("select setting, unit from pg_settings where name = 'weir.query_timeout'"), '1.5|s')
        ini = until('the pooler has it', lambda: (text := open(s.path('weir/weir.ini')).read()) and 'query_timeout = 1.500000' in text and text)
        assert 'pool_mode = session' in ini
        assert 'there is no parameter "weir.no_such_thing"' in s.logged()

def test_settings():
    with server(PRELOADED, 'weir.application_name_add_host = on', "weir.config_file = 'more.ini'") as s:
        s.write('more.ini', '[pgbouncer]\nmax_client_conn = 77\nquery_wait_timeout = 7\nauth_type = any\nadmin_users = app\n[databases]\nother = host=%s port=%d dbname=template1\n' % (s.folder, s.port))
        s.sql(['CREATE EXTENSION weir', 'CREATE DATABASE d', 'ALTER SYSTEM SET weir.query_wait_timeout = 9', "ALTER DATABASE postgres SET weir.pool_mode = 'session'",
               "ALTER DATABASE d SET weir.pool_mode = 'statement'", "ALTER ROLE app SET weir.query_timeout = '1min'"])
        s.on()
        shown = lambda name: s.sql(f"select value from weir.settings where name = '{name}'")
        until('a parameter counts more than the file', lambda: shown('query_wait_timeout') == '9.000000')
        same('the file more than a default', shown('max_client_conn'), '77')
        same('who may enter is not for it', shown('auth_type'), 'hba')
        same('who may look is not either', shown('admin_users'), '')
        same('for all', shown('pool_mode'), 'transaction')
        same('max_connections less the reserved', shown('max_db_connections'), '37')
        same('its entries', s.pooled('select current_database()', db='other'), 'template1')
        modes = "select database || ' ' || pool_mode from weir.pools where database <> 'pgbouncer' order by 1"
        s.pooled(db='d'); s.pooled()
        same('modes', s.sql(modes), 'd statement\nother transaction\npostgres session')
        s.sql(["ALTER DATABASE d RESET weir.pool_mode", "ALTER ROLE app SET weir.pool_mode = 'transaction'"])
        until('changed', lambda: s.sql(modes) == 'd transaction\nother transaction\npostgres transaction')
        s.sql(['ALTER SYSTEM RESET weir.query_wait_timeout', 'ALTER SYSTEM SET weir.max_client_conn = 88', 'SELECT pg_reload_conf()'])
        until('reset', lambda: (shown('query_wait_timeout'), shown('max_client_conn')) == ('7', '88'))

def test_settings_of_a_start():
    """What the pooler reads only as it starts it reads as well."""
    with server(PRELOADED) as s:
        s.on()
        old, s.pool = s.pool, next(ports)
        s.sql([f'ALTER SYSTEM SET weir.listen_port = {s.pool}', 'SELECT pg_reload_conf()'])
        until('the new port answers', s.answers)
        same('a query', s.pooled(), '1')
        s.pool = old
        same('the old one', s.answers(), False)

def test_clients_go_over():
    """Another start of the pooler, for a parameter or another program, ends nobody."""
    with server(PRELOADED, 'weir.workers = 1') as s:
        s.on()
        with load(s, port=s.pool, user='app'):
            for change in range(4):
                first = s.child()
                if change % 2: os.utime(PROGRAM)
                s.sql([f'ALTER SYSTEM SET weir.busy_poll = {change // 2 + 1}', 'SELECT pg_reload_conf()'])
                until('another child', lambda: s.child() not in (None, first))
                until('the first one ends', lambda: gone(first))
                count = int(s.sql('select count(*) from load'))
                until('the load goes on', lambda: int(s.sql('select count(*) from load')) > count)
        first = s.child()
        s.sql(["ALTER SYSTEM SET weir.listen_addr = '127.0.0.1,192.0.2.1,no-such-name.invalid'", 'SELECT pg_reload_conf()'])
        until('it cannot start', lambda: 'the one before it goes on' in s.logged())
        same('a query', s.pooled(), '1')
        same('the child', s.child(), first)

def test_views_and_grants():
    with server(PRELOADED) as s:
        s.sql(['CREATE EXTENSION weir', "CREATE ROLE watcher LOGIN IN ROLE pg_monitor; CREATE ROLE ender LOGIN IN ROLE pg_signal_backend"])
        assert 'weir.enabled is off' in s.sql('select * from weir.pools', check=False).stdout
        s.on()
        s.pooled()
        for view in ('pools', 'clients', 'servers', 'stats', 'pins', 'settings'):
            s.sql(f'select * from weir.{view}', user='watcher')
            assert 'permission denied' in s.sql(f'select * from weir.{view}', user='ender', check=False).stdout
        same('pools', s.sql("select database, \"user\", sv_idle from weir.pools where \"user\" = 'app'", user='watcher'), 'postgres|app|1')
        assert 'nothing to show' in s.sql("select weir.show('pools; shutdown')", check=False).stdout
        for call in ('pause()', "resume('postgres')", 'reconnect()', "kill('postgres')", 'kill_client(1)', 'start()'):
            assert 'permission denied' in s.sql(f'select weir.{call}', user='watcher', check=False).stdout, call
        s.sql("select weir.pause('postgres')", user='ender')
        waits = subprocess.Popen([PSQL, '-XAtc', 'select 42', '-h', '127.0.0.1', '-p', str(s.pool), '-U', 'app', 'postgres'], stdout=subprocess.PIPE, text=True, env=dict(os.environ, PGPASSWORD='secret'))
        until('it waits', lambda: s.sql("select cl_waiting from weir.pools where \"user\" = 'app'") == '1')
        s.sql('select weir.resume()', user='ender')
        same('it has waited', waits.communicate(timeout=20)[0].strip(), '42')
        s.sql('select weir.reconnect()', user='ender')
        until('servers are closed', lambda: s.sql("select count(*) from weir.servers where \"user\" = 'app'") == '0')
        waits = subprocess.Popen([PSQL, '-XAtc', 'select pg_sleep(60)', '-h', '127.0.0.1', '-p', str(s.pool), '-U', 'app', 'postgres'], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                 env=dict(os.environ, PGPASSWORD='secret'))
        number = until('it is there', lambda: s.sql("select id from weir.clients where \"user\" = 'app'"))
        s.sql(f'select weir.kill_client({number})', user='ender')
        assert 'server closed the connection' in waits.communicate(timeout=20)[0]

def test_exact():
    """Servers that have the library tell what a session holds."""
    with server(PRELOADED, 'weir.log_connections = on') as s:
        s.on()
        s.pooled()
        until('it is told', lambda: 'tells what its session holds' in s.logged())

def test_peer_is_not_for_the_pooler():
    """As Debian has it: roles come in on the Unix socket by the system's user, and the pooler by the loopback."""
    with server(PRELOADED, hba='local all postgres trust\nlocal all all peer\nhost all all 127.0.0.1/32 scram-sha-256\n') as s:
        s.on()
        same('a query', s.pooled("select current_user, inet_client_addr()"), 'app|127.0.0.1')

def test_unix_socket_is_the_way():
    with server(PRELOADED, hba='local all postgres trust\nlocal all all scram-sha-256\nhost all all 127.0.0.1/32 scram-sha-256\n') as s:
        s.on()
        same('a query', s.pooled("select current_user, inet_client_addr() is null"), 'app|t')

def test_a_map_lets_the_pooler_in():
    """Roles that come in without a password: the server knows the pooler by the system's user, and everybody else as before."""
    own = pwd.getpwuid(os.getuid()).pw_name if not NOBODY else 'nobody'
    with server(PRELOADED, hba='local all postgres trust\nlocal all all peer map=local\nhost all all 127.0.0.1/32 trust\n') as s:
        s.write('pg_ident.conf', 'local /^(.*)$ \\1\n' + (f'local {own} all\n' if MAJOR >= 16 else f'local {own} app\n'))
        s.on()
        same('a query', s.pooled('select current_user, inet_client_addr() is null'), 'app|t')

def test_stop_modes():
    for how in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        with server(PRELOADED) as s:
            s.on()
            s.pooled()
            pid = s.child()
            client = subprocess.Popen([PSQL, '-XAt', '-h', '127.0.0.1', '-p', str(s.pool), '-U', 'app', 'postgres'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(os.environ, PGPASSWORD='secret'))
            client.stdin.write('begin;\nselect 1;\n'); client.stdin.flush()
            same('begun', client.stdout.readline().strip() + client.stdout.readline().strip(), 'BEGIN1')
            os.kill(s.process.pid, how)
            if how == signal.SIGTERM:
                until('nobody new', lambda: not s.answers())
                client.stdin.write('select 2;\ncommit;\n'); client.stdin.flush()
                same('it goes on', client.stdout.readline().strip() + client.stdout.readline().strip(), '2COMMIT')
                same('the server waits', s.process.poll(), None)
                client.stdin.close()
            s.process.wait(20)
            until('the child is gone', lambda: gone(pid))
            client.kill()

def test_standby_and_promotion():
    with server("wal_level = replica", PRELOADED) as primary:
        primary.sql('CREATE EXTENSION weir')
        primary.stop()
        with server(PRELOADED, of=primary) as standby:
            primary.start()
            standby.on()
            same('reads', standby.pooled('select pg_is_in_recovery()'), 't')
            assert 'read-only' in standby.fails('create table t (a int)')
            primary.sql("CREATE ROLE late LOGIN PASSWORD 'secret'")
            until('what comes by replication', lambda: standby.fails(user='late') is None)
            idle = subprocess.Popen([PSQL, '-XAt', '-h', '127.0.0.1', '-p', str(standby.pool), '-U', 'app', 'postgres'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(os.environ, PGPASSWORD='secret'))
            ask = lambda text: (idle.stdin.write(text), idle.stdin.flush(), idle.stdout.readline().strip())[2]
            same('an idle client', ask('select pg_is_in_recovery();\n'), 't')
            pid = standby.child()
            standby.sql('select pg_promote()')
            same('it is promoted', ask('select pg_is_in_recovery();\n'), 'f')
            same('it writes', ask('create temp table t (a int);\n'), 'CREATE TABLE')
            same('the same child', standby.child(), pid)
            idle.stdin.close()
    with server(PRELOADED) as primary:
        primary.stop()
        with server(PRELOADED, 'weir.standby = off', of=primary) as standby:
            standby.sql(['ALTER SYSTEM SET weir.enabled = on', 'SELECT pg_reload_conf()'])
            time.sleep(1)
            same('it refuses', standby.answers(), False)
            standby.sql('select pg_promote()')
            until('it answers', standby.answers)

def test_dump():
    """An extension like others: dumped by its name, and made again."""
    with server(PRELOADED) as s:
        s.sql('CREATE EXTENSION weir')
        dump = shutil.which('pg_dump')
        text = run(dump, '-h', s.folder, '-p', str(s.port), '-U', 'postgres', 'postgres', check=False).stdout
        if 'server version mismatch' in text: return
        assert 'CREATE EXTENSION IF NOT EXISTS weir' in text and 'CREATE VIEW' not in text and 'weir_show' not in text
        s.sql('CREATE DATABASE again')
        s.sql([part for part in text.split(';\n') if 'CREATE SCHEMA' in part or 'CREATE EXTENSION' in part], db='again')
        s.sql('DROP EXTENSION weir', db='again')
        same('another stays', s.sql("select extname from pg_extension where extname = 'weir'"), 'weir')

def test_tls():
    if not shutil.which('openssl'): return
    with server(PRELOADED) as s:
        run('openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=one', '-keyout', s.path('server.key'), '-out', s.path('server.crt'))
        run('chmod', '600', s.path('server.key'))
        s.append('postgresql.conf', 'ssl = on\n')
        if s.sql(['select pg_reload_conf()', 'select pg_sleep(0.3)', 'show ssl']).split('\n')[-1] != 'on': return
        s.on()
        shown = lambda: run('openssl', 's_client', '-starttls', 'postgres', '-connect', f'127.0.0.1:{s.pool}', check=False).stdout
        until('its certificate', lambda: 'CN = one' in shown() or 'CN=one' in shown())
        run('openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=two', '-keyout', s.path('server.key'), '-out', s.path('server.crt'))
        s.sql('select pg_reload_conf()')
        until('the next one', lambda: 'CN = two' in shown() or 'CN=two' in shown())

if __name__ == '__main__':
    failed = passed = 0
    try:
        for name, test in sorted((n, t) for n, t in globals().items() if n.startswith('test_')):
            if ONLY and not any(word in name for word in ONLY): continue
            began = time.monotonic()
            try:
                test()
                passed += 1
                print(f'ok   {name} ({time.monotonic() - began:.1f} s)', flush=True)
            except Exception as error:
                failed += 1
                print(f'FAIL {name}: {error}', flush=True)
    finally:
        shutil.rmtree(ROOT, ignore_errors=True)
    print(f'{passed} passed, {failed} failed')
    sys.exit(failed > 0)
