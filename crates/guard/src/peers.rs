//! Clients and servers on real sockets around a pooler: all that goes on is decided here, step by step, by one thread.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use weir_wire::{ProtocolVersion, write};

use crate::messages;
use crate::postgres::Backend;

const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_micros(50);
const BUFFER_BYTES: usize = 16 * 1024;

struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

struct Server {
    stream: TcpStream,
    backend: Backend,
    /// Its answer, not sent yet.
    unsaid: Vec<u8>,
}

/// Both ends of the load.
pub struct Peers {
    listener: TcpListener,
    clients: Vec<Client>,
    servers: Vec<Server>,
    buffer: Vec<u8>,
}

impl Peers {
    pub fn new() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, clients: Vec::new(), servers: Vec::new(), buffer: vec![0; BUFFER_BYTES] })
    }

    /// Where the pooler finds its servers.
    pub fn server_address(&self) -> Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// Logs clients in, one after the other.
    pub fn log_in(&mut self, pooler: SocketAddr, count: usize) -> Result<()> {
        let mut startup = Vec::new();
        write::startup(&mut startup, ProtocolVersion::V3_0, &[("user", "guard"), ("database", "guard")]);
        for _ in 0..count {
            let stream = TcpStream::connect(pooler).context("cannot connect to weir")?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            self.clients.push(Client { stream, received: Vec::new() });
            let last = self.clients.len() - 1;
            self.say(last, &startup)?;
            self.until_answered(|peers| peers.clients[last..].iter().all(Client::is_answered))?;
            self.clients[last].received.clear();
        }
        Ok(())
    }

    pub fn say(&mut self, client: usize, bytes: &[u8]) -> Result<()> {
        // A request is far smaller than a socket's buffer.
        Ok(self.clients[client].stream.write_all(bytes)?)
    }

    pub fn say_all(&mut self, bytes: &[u8]) -> Result<()> {
        (0..self.clients.len()).try_for_each(|client| self.say(client, bytes))
    }

    /// Servers answer at once whatever comes, until all clients have their answers.
    pub fn serve(&mut self) -> Result<()> {
        self.until_answered(|peers| peers.clients.iter().all(Client::is_answered))?;
        self.forget();
        Ok(())
    }

    fn until_answered(&mut self, done: impl Fn(&Self) -> bool) -> Result<()> {
        self.until("an answer", |peers| {
            peers.answer()?;
            Ok(done(peers))
        })
    }

    /// Waits until so many servers have been asked.
    pub fn until_asked(&mut self, count: usize) -> Result<()> {
        self.until("a server is asked", |peers| {
            // Logins are answered at once.
            for server in peers.servers.iter_mut().filter(|server| !messages::is_result(&server.unsaid)) {
                server.say()?;
            }
            Ok(peers.servers.iter().filter(|server| messages::is_result(&server.unsaid)).count() >= count)
        })
    }

    /// All servers say what they have to say.
    pub fn answer(&mut self) -> Result<()> {
        self.servers.iter_mut().try_for_each(Server::say)
    }

    /// What clients received is known.
    pub fn forget(&mut self) {
        self.clients.iter_mut().for_each(|client| client.received.clear());
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> Result<bool>) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.receive()?;
            if done(self)? {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "waited too long until {what}");
            std::thread::sleep(PAUSE);
        }
    }

    fn receive(&mut self) -> Result<()> {
        while let Some((stream, _)) = would_block(self.listener.accept())? {
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            self.servers.push(Server { stream, backend: Backend::default(), unsaid: Vec::new() });
        }
        for server in &mut self.servers {
            while let Some(len) = would_block(server.stream.read(&mut self.buffer))? {
                ensure!(len > 0, "weir has closed a server's connection");
                server.backend.receive(&self.buffer[..len], &mut server.unsaid);
            }
        }
        for client in &mut self.clients {
            while let Some(len) = would_block(client.stream.read(&mut self.buffer))? {
                ensure!(len > 0, "weir has closed a client's connection");
                client.received.extend_from_slice(&self.buffer[..len]);
            }
        }
        Ok(())
    }
}

impl Client {
    fn is_answered(&self) -> bool {
        messages::ends_ready(&self.received)
    }
}

impl Server {
    fn say(&mut self) -> Result<()> {
        if !self.unsaid.is_empty() {
            self.stream.write_all(&self.unsaid)?;
            self.unsaid.clear();
        }
        Ok(())
    }
}

fn would_block<T>(result: io::Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error.into()),
    }
}
