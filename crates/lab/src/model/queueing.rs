//! A closed queueing model: so many clients think, and wait for one of several servers with one queue.
//!
//! Exact for service and think times that vary as the exponential distribution does (the machine repairman's model, M/M/m//N);
//! services that vary less wait less, so its waits are rather too long than too short. Throughput and means depend little on
//! that assumption, the 99th percentile more. Does not know measurements.

/// Clients beyond this are as good as infinitely many, and take long to sum over.
const CLIENTS_MAX: usize = 1_000_000;
/// Bisections until a percentile is known to nine digits of the largest possible wait.
const BISECTIONS: usize = 60;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Station {
    /// Seconds that a server works on one transaction.
    pub service: f64,
    /// Transactions that are worked on at once: cores, or server connections, whichever is less.
    pub servers: usize,
    /// Seconds between an answer and the client's next transaction.
    pub think: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Transactions per second.
    pub throughput: f64,
    /// Mean seconds from asking to the answer.
    pub response: f64,
    /// Of these, 99 of 100 are faster.
    pub response_99: f64,
    /// The busy part of all servers' time.
    pub utilisation: f64,
}

impl Station {
    /// `None` of times that are no times, of no servers, or too many clients.
    pub fn with(&self, clients: usize) -> Option<Load> {
        let possible = self.service > 0.0 && self.service.is_finite() && self.think >= 0.0 && self.think.is_finite();
        if !possible || self.servers == 0 || clients == 0 || clients > CLIENTS_MAX {
            return None;
        }
        let present = self.present(clients);
        let busy: f64 = present.iter().enumerate().map(|(at, part)| part * at.min(self.servers) as f64).sum();
        let throughput = busy / self.service;
        let response = clients as f64 / throughput - self.think;
        let utilisation = busy / self.servers as f64;
        Some(Load { throughput, response, response_99: self.percentile(clients, 0.99), utilisation })
    }

    /// Where more clients begin to wait: the crossing of both asymptotes.
    pub fn knee(&self) -> f64 {
        self.servers as f64 * (self.service + self.think) / self.service
    }

    /// The most transactions per second.
    pub fn ceiling(&self) -> f64 {
        self.servers as f64 / self.service
    }

    /// How likely it is that 0, 1, ... clients are at the servers: a chain of births and deaths.
    fn present(&self, clients: usize) -> Vec<f64> {
        if self.think == 0.0 {
            let mut present = vec![0.0; clients + 1];
            present[clients] = 1.0;
            return present;
        }
        // As logarithms, since the products overflow with a few hundred clients.
        let mut logarithms = Vec::with_capacity(clients + 1);
        let mut sum = 0.0f64;
        logarithms.push(sum);
        for at in 0..clients {
            let births = (clients - at) as f64 / self.think;
            let deaths = (at + 1).min(self.servers) as f64 / self.service;
            sum += (births / deaths).ln();
            logarithms.push(sum);
        }
        let largest = logarithms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = logarithms.iter().map(|each| (each - largest).exp()).collect();
        let total: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / total).collect()
    }

    /// A client that comes finds the others as they would be without it (the arrival theorem), waits until a server is free for
    /// it, first come first served, and is served.
    fn percentile(&self, clients: usize, part: f64) -> f64 {
        let found = self.present(clients - 1);
        let (mut low, mut high) = (0.0, self.service * (clients as f64 + 50.0));
        for _ in 0..BISECTIONS {
            let middle = f64::midpoint(low, high);
            if self.answered_within(&found, middle) < part { low = middle } else { high = middle }
        }
        f64::midpoint(low, high)
    }

    fn answered_within(&self, found: &[f64], time: f64) -> f64 {
        let free: f64 = found.iter().take(self.servers).sum();
        let mut within = free * (1.0 - (-time / self.service).exp());
        let queued = &found[self.servers.min(found.len())..];
        for (before, part) in queued.iter().enumerate() {
            if *part > 1e-12 {
                within += part * self.waited_and_served(before + 1, time);
            }
        }
        within
    }

    /// The distribution of `ends` services ending one after the other at all servers, and then one's own. The sum of the queue's
    /// Erlang time and the service's exponential one is nearly normal for long queues, and exactly Erlang with one server.
    fn waited_and_served(&self, ends: usize, time: f64) -> f64 {
        let drain = self.service / self.servers as f64;
        let steps = 64;
        // Integrates over one's own service by its quantiles.
        let quantile = |step: usize| -self.service * (1.0 - (step as f64 + 0.5) / steps as f64).ln();
        (0..steps).map(|step| erlang(ends, drain, time - quantile(step))).sum::<f64>() / steps as f64
    }
}

/// How likely it is that `count` exponential times of this mean have passed one after the other.
fn erlang(count: usize, mean: f64, time: f64) -> f64 {
    if time <= 0.0 {
        return 0.0;
    }
    let (count, x) = (count as f64, time / mean);
    // Wilson and Hilferty's approximation of the chi-squared distribution, good to three digits from a count of one.
    let cube = (x / count).cbrt();
    let deviation = (1.0 / (9.0 * count)).sqrt();
    standard_normal((cube - (1.0 - 1.0 / (9.0 * count))) / deviation)
}

/// The cumulative normal distribution (Abramowitz and Stegun, 26.2.17: errors below 1e-7).
fn standard_normal(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let polynomial =
        t * (0.319_381_530 + t * (-0.356_563_782 + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    let tail = polynomial * (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt();
    if x >= 0.0 { 1.0 - tail } else { tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, wanted: f64, part: f64) {
        assert!((found / wanted - 1.0).abs() < part, "{found}, not {wanted}");
    }

    #[test]
    fn without_thinking_all_servers_are_busy() {
        let station = Station { service: 0.01, servers: 8, think: 0.0 };
        near(station.with(4).unwrap().throughput, 400.0, 1e-9);
        near(station.with(64).unwrap().throughput, 800.0, 1e-9);
        near(station.with(64).unwrap().response, 0.08, 1e-9);
        near(station.knee(), 8.0, 1e-9);
    }

    #[test]
    fn one_server_has_its_known_percentile() {
        // Eight clients, one server: always seven before, so the answer takes eight exponential services, Erlang(8).
        let load = Station { service: 1.0, servers: 1, think: 0.0 }.with(8).unwrap();
        near(load.response_99, 16.0, 0.02);
        // Alone: -ln(0.01) services.
        near(Station { service: 1.0, servers: 1, think: 3.0 }.with(1).unwrap().response_99, 4.605, 0.01);
    }

    #[test]
    fn thinking_clients_agree_with_simulation() {
        let station = Station { service: 0.02, servers: 3, think: 0.1 };
        let (throughput, response) = simulated(station, 20);
        let load = station.with(20).unwrap();
        near(load.throughput, throughput, 0.02);
        near(load.response, response, 0.03);
    }

    /// Events in order of time, exponential times: nothing of the formulas above.
    fn simulated(station: Station, clients: usize) -> (f64, f64) {
        let mut random = fastrand::Rng::with_seed(11);
        let mut exponential = |mean: f64| -mean * (1.0 - random.f64()).ln();
        let mut asks: Vec<f64> = (0..clients).map(|_| exponential(station.think)).collect();
        let mut free = vec![0.0f64; station.servers];
        let (mut answered, mut responses, mut end) = (0u32, 0.0, 0.0);
        while answered < 200_000 {
            let client = (0..clients).min_by(|a, b| asks[*a].total_cmp(&asks[*b])).unwrap();
            let server = (0..station.servers).min_by(|a, b| free[*a].total_cmp(&free[*b])).unwrap();
            end = asks[client].max(free[server]) + exponential(station.service);
            free[server] = end;
            responses += end - asks[client];
            answered += 1;
            asks[client] = end + exponential(station.think);
        }
        (f64::from(answered) / end, responses / f64::from(answered))
    }

    #[test]
    fn impossible_stations_answer_nothing() {
        let good = Station { service: 0.01, servers: 2, think: 0.0 };
        assert!(good.with(0).is_none() && good.with(CLIENTS_MAX + 1).is_none());
        assert!(Station { service: 0.0, ..good }.with(1).is_none());
        assert!(Station { service: f64::NAN, ..good }.with(1).is_none());
        assert!(Station { servers: 0, ..good }.with(1).is_none());
        assert!(Station { think: 1e9, ..good }.with(2000).unwrap().throughput > 0.0);
    }
}
