//! What happens in a conversation beside its peers: time, new settings, signals, and what the program around the worker is told.

use weir_core::Command;
use weir_core::time::Duration;

use super::play::{Play, Stop, set};
use super::script::Action;
use super::words::{Word, matches};

impl Play<'_> {
    pub(super) fn pass(&mut self, duration: Duration) -> Result<(), Stop> {
        self.quiet(None)?;
        self.driver.pass(duration);
        Ok(())
    }

    pub(super) fn reload(&mut self, action: &Action) -> Result<(), Stop> {
        self.quiet(None)?;
        set(&mut self.settings, action)?;
        self.driver.settings(self.settings.clone());
        Ok(())
    }

    pub(super) fn command(&mut self, name: &str) -> Result<(), Stop> {
        self.quiet(None)?;
        let command = match name {
            "reload" => Command::Reload,
            "pause" => Command::Pause,
            "resume" => Command::Resume,
            "shutdown wait for clients" => Command::ShutdownWaitForClients,
            "shutdown wait for servers" => Command::ShutdownWaitForServers,
            "shutdown now" => Command::ShutdownNow,
            // Not signals: another process asks to take over, and has its clients.
            "hand over" => Command::HandOver,
            "taken over" => {
                let names = self.driver.taken_over(self.settings.clone())?;
                for peer in self.peers.values_mut() {
                    peer.conn = names.get(&peer.conn).copied().unwrap_or(peer.conn);
                }
                self.peers.retain(|name, _| name.starts_with('C'));
                return Ok(());
            }
            // Not a signal: the program ends the workers.
            "stop" => {
                self.driver.stop();
                return Ok(());
            }
            // Not a signal: the program around the workers is done with what Event::Reload asked for.
            "reload done" | "reload failed" => {
                self.driver.reload_done(if name.ends_with("done") { Ok(None) } else { Err("why not".to_owned()) });
                return Ok(());
            }
            // Not a signal: a name server does not tell an address any more.
            name if name.starts_with("host ") => {
                let mut words = name.split(' ').skip(1);
                let host = words.next().unwrap_or_default();
                let gone = words
                    .skip(1)
                    .map(str::parse)
                    .collect::<Result<_, _>>()
                    .map_err(|_| "host NAME leaves ADDRESS...")?;
                self.driver.host_moved(host, gone);
                return Ok(());
            }
            _ => return Err(format!("no command {name}").into()),
        };
        self.driver.command(command);
        Ok(())
    }

    pub(super) fn log(&mut self, words: &[Word]) -> Result<(), Stop> {
        let lines = std::mem::take(&mut self.driver.log);
        let is_said = lines.iter().any(|line| matches(words, &[line.clone().into_bytes()], &mut self.bindings));
        if is_said { Ok(()) } else { Err(format!("the log says {lines:?}").into()) }
    }

    pub(super) fn event(&mut self, words: &[Word]) -> Result<(), Stop> {
        let event = self.driver.events.pop_front().ok_or("the program was told nothing")?;
        if matches(words, &[event.clone().into_bytes()], &mut self.bindings) {
            return Ok(());
        }
        Err(format!("the program was told {event}").into())
    }
}
