/*-------------------------------------------------------------------------
 *
 * child.c
 *	  The pooler as a child process: how it is started, heard and ended.
 *
 * It shares nothing with the server: no memory, no descriptor, no session of
 * processes.  What it says on standard error goes to the server's log, and it
 * tells when it is ready as it tells a service manager (sd_notify(3)).  When
 * the background worker ends, however that is, the kernel ends it, too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/timestamp.h"

#include "weir.h"


/*
 * A process of ours that was left behind, as where a worker was killed while
 * its child did not heed signals: it would still have the port.
 */
void
weir_end_orphan(void)
{
	char		path[MAXPGPATH];
	char		buf[MAXPGPATH * 2];
	const char *own;
	int			pid;
	int			fd;
	ssize_t		n;

	snprintf(path, sizeof(path), "%s/weir.pid", weir_folder());
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	n = read(fd, buf, 31);
	close(fd);
	if (n <= 0)
		return;
	buf[n] = '\0';
	pid = atoi(buf);
	if (pid <= 1)
		return;

	/* Is it a pooler, with this folder's configuration? */
	snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	n = read(fd, buf, sizeof(buf) - 1);
	close(fd);
	if (n <= 0)
		return;
	buf[n] = '\0';
	own = weir_file("weir.ini");
	for (ssize_t at = 0; at < n; at += strlen(buf + at) + 1)
	{
		if (strcmp(buf + at, own) != 0)
			continue;
		ereport(LOG,
				(errmsg("weir: process %d was left behind, and is ended", pid)));
		kill(pid, SIGKILL);
		for (int i = 0; i < 200 && kill(pid, 0) == 0; i++)
			pg_usleep(10000L);
		return;
	}
}

/* Where the program is, or NULL */
static const char *
program(void)
{
	static char found[MAXPGPATH];
	char		beside[MAXPGPATH];
	const char *folders[] = {beside, "/usr/local/bin", "/usr/bin"};

	if (weir_program[0] == '/')
		return weir_program;
	strlcpy(beside, my_exec_path, sizeof(beside));
	get_parent_directory(beside);
	for (int i = 0; i < (int) lengthof(folders); i++)
	{
		snprintf(found, sizeof(found), "%s/%s", folders[i], weir_program);
		if (access(found, X_OK) == 0)
			return found;
	}
	return NULL;
}

/* Between fork and exec: nothing but calls of the system */
static void
become_pooler(pid_t parent, int out, const char *path, const char *ini,
			  const char *notify, bool takes_over)
{
	static const int handled[] = {
		SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD, SIGALRM, SIGPIPE,
		SIGFPE, SIGURG
	};
	char	   *const alone[] = {"weir", (char *) ini, NULL};
	char	   *const behind[] = {"weir", "-R", (char *) ini, NULL};
	sigset_t	none;
	int			null;

	/* Signals that are for the server's processes are none of its own */
	setsid();
	for (int i = 0; i < (int) lengthof(handled); i++)
		signal(handled[i], SIG_DFL);
	/* One that comes before it can hear it must not end it */
	signal(SIGHUP, SIG_IGN);

	/* SIGQUIT, so that it can tell its clients */
	if (prctl(PR_SET_PDEATHSIG, SIGQUIT) < 0 || getppid() != parent)
		_exit(1);

	null = open("/dev/null", O_RDONLY);
	if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
		_exit(1);
#ifdef SYS_close_range
	if (syscall(SYS_close_range, 3, ~0U, 0) != 0)
#endif
		for (int fd = (int) sysconf(_SC_OPEN_MAX); fd >= 3; fd--)
			close(fd);

	/* The server's service manager is not the pooler's */
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDNAMES");
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
	setenv("NOTIFY_SOCKET", notify, 1);

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execv(path, takes_over ? behind : alone);
	_exit(127);
}

/* A socket on which the child tells how it goes */
static int
open_notify(const char *path)
{
	struct sockaddr_un address;
	int			fd;

	if (strlen(path) >= sizeof(address.sun_path))
	{
		ereport(WARNING,
				(errmsg("weir: the path \"%s\" is too long for a socket", path)));
		return -1;
	}
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	memset(&address, 0, sizeof(address));
	address.sun_family = AF_UNIX;
	strcpy(address.sun_path, path);
	unlink(path);
	if (fd < 0 || bind(fd, (struct sockaddr *) &address, sizeof(address)) < 0)
	{
		ereport(WARNING,
				(errmsg("weir: could not make the socket \"%s\": %m", path)));
		if (fd >= 0)
			close(fd);
		return -1;
	}
	return fd;
}

/* Which file that is, to be compared: another release has another */
void
weir_append_program(StringInfo to)
{
	const char *path = program();
	struct stat found;

	if (path != NULL && stat(path, &found) == 0)
		appendStringInfo(to, "%s %lu %ld %ld\n", path, (unsigned long) found.st_ino,
						 (long) found.st_mtim.tv_sec, (long) found.st_mtim.tv_nsec);
}

/*
 * Start it, in the place of one that runs perhaps.  False: it could not be, and
 * why is in the log.
 */
bool
weir_start_child(Child *child, bool takes_over)
{
	const char *path = program();
	char		ini[MAXPGPATH];
	char		notify[MAXPGPATH];
	int			out[2];
	sigset_t	all,
				before;
	pid_t		parent = getpid();
	pid_t		pid;

	if (path == NULL || access(path, X_OK) != 0)
	{
		ereport(WARNING,
				(errmsg("weir: there is no program \"%s\"", weir_program),
				 errhint("Install the package \"weir\", or say with weir.program where it is.")));
		return false;
	}
	strlcpy(ini, weir_file("weir.ini"), sizeof(ini));
	strlcpy(notify, weir_file("notify"), sizeof(notify));
	if (child->notify < 0)
		child->notify = open_notify(notify);
	if (child->notify < 0)
		return false;
	if (pipe2(out, O_CLOEXEC) < 0)
	{
		ereport(WARNING, (errmsg("weir: could not open a pipe: %m")));
		return false;
	}
	fcntl(out[0], F_SETFL, O_NONBLOCK);

	fflush(NULL);
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	pid = fork();
	if (pid == 0)
		become_pooler(parent, out[1], path, ini, notify, takes_over);
	sigprocmask(SIG_SETMASK, &before, NULL);
	close(out[1]);
	if (pid < 0)
	{
		close(out[0]);
		ereport(WARNING, (errmsg("weir: could not fork: %m")));
		return false;
	}
	child->pid = pid;
	child->out = out[0];
	child->ready = false;
	child->reload = false;
	child->ending = 0;
	child->since = GetCurrentTimestamp();
	child->line_len = 0;
	return true;
}

/* Its lines begin "date time zone [pid] LEVEL " */
static void
say(const char *text)
{
	const char *message = strstr(text, "] ");
	int			level = LOG;

	if (message != NULL)
	{
		message += 2;
		if (strncmp(message, "LOG ", 4) == 0)
			message += 4;
		else if (strncmp(message, "WARNING ", 8) == 0 ||
				 strncmp(message, "ERROR ", 6) == 0 ||
				 strncmp(message, "FATAL ", 6) == 0)
		{
			/* An error of the pooler is none of this process */
			level = WARNING;
			message = strchr(message, ' ') + 1;
		}
		else
			message = NULL;
	}
	if (message == NULL)
		message = strncmp(text, "weir: ", 6) == 0 ? text + 6 : text;
	ereport(level, (errmsg_internal("weir: %s", message),
					errhidestmt(true)));
}

/* What it has said, to the log.  False: it will say no more. */
bool
weir_hear_child(Child *child)
{
	char		buf[4096];

	for (int round = 0; round < 64; round++)
	{
		ssize_t		n = read(child->out, buf, sizeof(buf));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK;
		if (n == 0)
			return false;
		for (ssize_t i = 0; i < n; i++)
		{
			if (buf[i] != '\n')
				child->line[child->line_len++] = buf[i] == '\0' ? '?' : buf[i];
			if (child->line_len > 0 &&
				(buf[i] == '\n' || child->line_len == sizeof(child->line) - 1))
			{
				child->line[child->line_len] = '\0';
				child->line_len = 0;
				say(child->line);
			}
		}
		if (n < (ssize_t) sizeof(buf))
			break;
	}
	return true;
}

/* What it tells a service manager */
void
weir_hear_notify(Child *child)
{
	char		buf[1024];
	ssize_t		n;

	while ((n = recv(child->notify, buf, sizeof(buf) - 1, MSG_DONTWAIT)) > 0)
	{
		buf[n] = '\0';
		/* It is READY again behind a reload */
		if (strstr(buf, "READY=1") != NULL)
			child->ready = true;
	}
}

void
weir_signal_child(Child *child, int signal)
{
	if (child->pid > 0)
		kill(child->pid, signal);
}

/* Has it ended?  Then it is as if it had never been, but for its status. */
bool
weir_reap_child(Child *child, int *status)
{
	if (child->pid == 0 || waitpid(child->pid, status, WNOHANG) != child->pid)
		return false;
	weir_hear_child(child);
	if (child->out >= 0)
		close(child->out);
	child->out = -1;
	child->pid = 0;
	child->ready = false;
	child->ending = 0;
	return true;
}

/* It has this long; behind that it is ended for certain */
void
weir_end_child(Child *child, int milliseconds)
{
	int			status;

	if (child->pid == 0)
		return;
	kill(child->pid, SIGQUIT);
	/* One that was stopped hears nothing */
	kill(child->pid, SIGCONT);
	for (int waited = 0; waited < milliseconds; waited += 10)
	{
		if (weir_reap_child(child, &status))
			return;
		/* It does not wait for its log, but let that be complete */
		weir_hear_child(child);
		pg_usleep(10000L);
	}
	kill(child->pid, SIGKILL);
	while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
		;
	child->pid = 0;
}
