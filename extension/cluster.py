"""Clusters of PostgreSQL that have the extension: what test_builtin.py tests on, with its arguments."""
import contextlib, glob, os, pwd, re, shutil, signal, socket, subprocess, sys, tempfile, threading, time

BIN, LIB, WEIR = map(os.path.abspath, sys.argv[1:4])
ONLY = sys.argv[4:]
HERE = os.path.dirname(os.path.abspath(__file__))
NOBODY = ['setpriv', '--reuid=nobody', '--regid=nogroup', '--clear-groups'] if os.getuid() == 0 else []
FIRST_PORT = int(os.environ.get('WEIR_TEST_PORT', '6300'))
PSQL = shutil.which('psql') or os.path.join(BIN, 'psql')
ROOT = tempfile.mkdtemp(prefix='weir-builtin-')

def free_ports():
    """Some that nobody has now"""
    while True:
        for port in range(FIRST_PORT, FIRST_PORT + 100):
            with socket.socket() as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try: one.bind(('127.0.0.1', port))
                except OSError: continue
            yield port

ports = free_ports()

def until(what, condition, seconds=60.0):
    """Waits for it, with a bound."""
    end = time.monotonic() + seconds
    while True:
        last = condition()
        if last: return last
        if time.monotonic() > end: raise AssertionError(f'{what}: not within {seconds} s (last: {last!r})')
        time.sleep(0.01)

def same(what, got, expected):
    if got != expected: raise AssertionError(f'{what}: {got!r}, expected {expected!r}')

# ---------------------------------------------------------------- PostgreSQL with the extension

def link_all(source, to):
    os.makedirs(to, exist_ok=True)
    for name in os.listdir(source): os.symlink(os.path.join(source, name), os.path.join(to, name))

def installation():
    """PostgreSQL finds its files by where its program is: a copy of that beside links to the rest, and the extension among them."""
    major = re.search(r'(\d+)', subprocess.check_output([os.path.join(BIN, 'postgres'), '--version'], text=True)).group(1)
    debian = f'/usr/lib/postgresql/{major}/bin'
    if BIN == debian:
        places = (f'usr/lib/postgresql/{major}/bin', f'usr/lib/postgresql/{major}/lib', f'usr/share/postgresql/{major}')
        lib, share = f'/usr/lib/postgresql/{major}/lib', f'/usr/share/postgresql/{major}'
    else:
        prefix = os.path.dirname(BIN)
        own = lambda name: f'{name}/postgresql' if os.path.isdir(f'{prefix}/{name}/postgresql') else name
        places = ('bin', own('lib'), own('share'))
        lib, share = f'{prefix}/{own("lib")}', f'{prefix}/{own("share")}'
    to = [os.path.join(ROOT, 'pg', place) for place in places]
    os.makedirs(to[0])
    for name in os.listdir(BIN): shutil.copy(os.path.join(BIN, name), to[0])
    link_all(lib, to[1])
    if BIN != debian and os.path.basename(to[1]) == 'postgresql':
        for name in os.listdir(os.path.dirname(lib)):
            if name != 'postgresql': os.symlink(os.path.join(os.path.dirname(lib), name), os.path.join(os.path.dirname(to[1]), name))
    with contextlib.suppress(FileNotFoundError): os.remove(os.path.join(to[1], 'weir.so'))
    shutil.copy(LIB, os.path.join(to[1], 'weir.so'))
    link_all(share, to[2])
    os.remove(os.path.join(to[2], 'extension'))
    link_all(os.path.join(share, 'extension'), os.path.join(to[2], 'extension'))
    for name in glob.glob(f'{HERE}/weir.control') + glob.glob(f'{HERE}/weir--*.sql'):
        place = os.path.join(to[2], 'extension', os.path.basename(name))
        with contextlib.suppress(FileNotFoundError): os.remove(place)
        shutil.copy(name, place)
    program = os.path.join(ROOT, 'weir')
    shutil.copy(WEIR, program)
    for folder in (ROOT, os.path.join(ROOT, 'pg')): os.chmod(folder, 0o755)
    return to[0], int(major), program

def run(*args, check=True, user=True, **more):
    done = subprocess.run([*(NOBODY if user else []), *args], text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)
    if check and done.returncode != 0: raise AssertionError(f'{args}: {done.returncode}\n{done.stdout}')
    return done

HBA = 'local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\nlocal replication all trust\nhost replication all 127.0.0.1/32 trust\n'

class Server:
    """A cluster; its superuser is called postgres, and app has a password"""
    def __init__(s, *settings, hba=HBA, of=None, init=('-A', 'trust')):
        s.port, s.pool = next(ports), next(ports)
        s.folder = tempfile.mkdtemp(dir=ROOT, prefix='d')
        s.data, s.log, s.process = f'{s.folder}/data', f'{s.folder}/log', None
        os.chmod(s.folder, 0o777)
        if of is None:
            run(f'{BINS}/initdb', '-D', s.data, '-U', 'postgres', '-N', '--no-instructions', *init)
            s.write('pg_hba.conf', hba)
        else: s.copy(of)
        s.append('postgresql.conf', f"port = {s.port}\nunix_socket_directories = '{s.folder}'\nlisten_addresses = '127.0.0.1'\nfsync = off\n"
                 f"max_connections = 40\nweir.listen_port = {s.pool}\nweir.program = '{PROGRAM}'\nlog_line_prefix = '%m [%p] %b '\n" + ''.join(f'{line}\n' for line in settings))
        s.start()
        if of is None: s.sql("CREATE ROLE app LOGIN PASSWORD 'secret'; ALTER DATABASE postgres SET default_text_search_config = 'simple'")
    def copy(s, of):
        run('cp', '-a', of.data, s.data)
        run('rm', '-rf', f'{s.data}/postmaster.pid', f'{s.data}/weir')
        s.write('standby.signal', '')
        s.append('postgresql.conf', f"primary_conninfo = 'host={of.folder} port={of.port} user=postgres'\n")
    def path(s, name): return os.path.join(s.data, name)
    def write(s, name, text, mode='w'):
        with open(s.path(name), mode) as file: file.write(text)
        if NOBODY: shutil.chown(s.path(name), 'nobody', 'nogroup')
    def append(s, name, text): s.write(name, text, 'a')
    def start(s):
        out = open(s.log, 'a')
        def runs():
            # Whatever of the last one is still there keeps it from starting
            if s.process is None or s.process.poll() is not None:
                s.process = subprocess.Popen([*NOBODY, f'{BINS}/postgres', '-D', s.data], stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
            return True
        try: until('the server starts', lambda: runs() and run(PSQL, '-h', s.folder, '-p', str(s.port), '-U', 'postgres', '-c', 'select 1', 'postgres', check=False).returncode == 0)
        except AssertionError as error:
            s.process.kill()
            raise AssertionError(f'{error}\n{s.logged()[-3000:]}')
    def stop(s, how=signal.SIGINT, seconds=30):
        if s.process and s.process.poll() is None:
            os.kill(s.process.pid, how)
            s.process.wait(seconds)
    def logged(s):
        with open(s.log, errors='replace') as file: return file.read()
    # psql: what it printed
    def psql(s, sql, port, user, host, db='postgres', check=True, password='secret'):
        env = dict(os.environ, PGPASSWORD=password, PGCONNECT_TIMEOUT='20')
        done = run(PSQL, '-X', '-At', '-v', 'ON_ERROR_STOP=1', '-h', host, '-p', str(port), '-U', user, *[x for one in ([sql] if isinstance(sql, str) else sql) for x in ('-c', one)], db, check=check, env=env)
        return done.stdout.strip() if check else done
    def sql(s, sql, db='postgres', user='postgres', **more): return s.psql(sql, s.port, user, s.folder, db, **more)
    def pooled(s, sql='select 1', user='app', host='127.0.0.1', **more): return s.psql(sql, s.pool, user, host, **more)
    def fails(s, sql='select 1', **more):
        done = s.pooled(sql, check=False, **more)
        return done.stdout.strip() if done.returncode != 0 else None
    def answers(s):
        with contextlib.suppress(OSError):
            socket.create_connection(('127.0.0.1', s.pool), 1).close()
            return True
        return False
    def on(s):
        s.sql(["LOAD 'weir'", 'ALTER SYSTEM SET weir.enabled = on', 'SELECT pg_reload_conf()'])
        until('the port answers', s.answers)
    def off(s):
        s.sql(["LOAD 'weir'", 'ALTER SYSTEM SET weir.enabled = off', 'SELECT pg_reload_conf()'])
        until('the port is closed', lambda: not s.answers())
    def child(s):
        """The pooler's process, or None"""
        with contextlib.suppress(OSError, ValueError):
            pid = int(open(s.path('weir/weir.pid')).read())
            with open(f'/proc/{pid}/cmdline') as file:
                return pid if s.path('weir/weir.ini') in file.read() else None

@contextlib.contextmanager
def server(*settings, **more):
    one = Server(*settings, **more)
    try: yield one
    except BaseException:
        print(f'--- the end of the log:\n{one.logged()[-6000:]}')
        raise
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired): one.stop(signal.SIGQUIT)
        if one.process.poll() is None: one.process.kill()

PRELOADED = "shared_preload_libraries = 'weir'"

BINS, MAJOR, PROGRAM = installation()
