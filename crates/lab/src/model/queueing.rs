//! A closed queueing model: so many clients think, and wait for one of several servers with one queue.
//!
//! Exact for service and think times that vary as the exponential distribution does (the machine repairman's model, M/M/m//N);
//! services that vary less wait less, so its waits are rather too long than too short. Throughput and means depend little on
//! that assumption, the 99th percentile more. Does not know measurements.

/// Clients beyond this are as good as infinitely many, and take long to sum over.
pub const CLIENTS_MAX: usize = 1_000_000;
/// Bisections until a percentile is known to twelve digits of the longest wait.
const BISECTIONS: usize = 40;
/// Against the most likely count: all that is less likely adds nothing to a percentile.
const VANISHING: f64 = 1e-18;

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
        let throughput = self.throughput(clients)?;
        let response = clients as f64 / throughput - self.think;
        let utilisation = throughput / self.ceiling();
        Some(Load { throughput, response, response_99: self.percentile(clients, 0.99), utilisation })
    }

    /// Transactions per second of so many clients; the same without percentiles, which take longer to compute.
    pub fn throughput(&self, clients: usize) -> Option<f64> {
        let possible = self.service > 0.0 && self.service.is_finite() && self.think >= 0.0 && self.think.is_finite();
        if !possible || self.servers == 0 || clients == 0 || clients > CLIENTS_MAX {
            return None;
        }
        let present = self.present(clients);
        let busy: f64 = present.iter().enumerate().map(|(at, part)| part * at.min(self.servers) as f64).sum();
        Some(busy / self.service)
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

    /// Below which time 99 of 100 answers come. A client that comes finds the others as they would be without it (the arrival
    /// theorem), waits until a server is free for it, first come first served, and is served.
    fn percentile(&self, clients: usize, part: f64) -> f64 {
        let found = self.present(clients - 1);
        let (queue, servers) = (clients as f64, self.servers as f64);
        // All others before it and a service of its own, each far out in its tail.
        let drained = self.service / servers * (queue + 10.0 * queue.sqrt() + 50.0);
        let (mut low, mut high) = (0.0, drained + 10.0 * self.service);
        for _ in 0..BISECTIONS {
            let middle = f64::midpoint(low, high);
            if self.later_than(&found, middle) > 1.0 - part { low = middle } else { high = middle }
        }
        f64::midpoint(low, high)
    }

    /// How likely an answer takes longer. While all servers are busy, services end as a Poisson process; the client's own begins
    /// with the `ends`-th of them, and each one after that is its own with a chance of one in as many as there are servers.
    fn later_than(&self, found: &[f64], time: f64) -> f64 {
        let servers = self.servers as f64;
        let free: f64 = found.iter().take(self.servers).sum();
        let queued = &found[self.servers.min(found.len())..];
        if queued.is_empty() {
            return free * (-time / self.service).exp();
        }
        let others = 1.0 - 1.0 / servers;
        let ended = Poisson::of(time * servers / self.service);
        let mut later = free * (-time / self.service).exp();
        // `served` counts the ways in which the client's service began and did not end: of one end more by one step.
        let (mut not_begun, mut served) = (1.0, 0.0);
        for ends in (1..queued.len().max(ended.last) + 1).rev() {
            served = others * (ended.exactly(ends + 1) + served);
            not_begun -= ended.exactly(ends + 1);
            later += queued.get(ends - 1).map_or(0.0, |part| part * (not_begun.max(0.0) + served));
        }
        later
    }
}

/// The chances of a Poisson distribution, where they are not vanishing.
struct Poisson {
    first: usize,
    last: usize,
    chances: Vec<f64>,
}

impl Poisson {
    /// From its most likely count outwards, each chance from its neighbour's, so that nothing overflows.
    fn of(mean: f64) -> Poisson {
        let mode = mean.floor() as usize;
        let mut below = Vec::new();
        let (mut chance, mut at) = (1.0, mode);
        while at > 0 && chance > VANISHING {
            chance *= at as f64 / mean;
            at -= 1;
            below.push(chance);
        }
        let mut chances: Vec<f64> = below.into_iter().rev().collect();
        let first = at;
        (chance, at) = (1.0, mode);
        while chance > VANISHING {
            chances.push(chance);
            at += 1;
            chance *= mean / at as f64;
        }
        let sum: f64 = chances.iter().sum();
        chances.iter_mut().for_each(|chance| *chance /= sum);
        Poisson { first, last: first + chances.len() - 1, chances }
    }

    fn exactly(&self, count: usize) -> f64 {
        count.checked_sub(self.first).and_then(|at| self.chances.get(at)).copied().unwrap_or(0.0)
    }
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
        // Half of the chi-squared distribution's percentile with sixteen degrees of freedom, 31.9999.
        let load = Station { service: 1.0, servers: 1, think: 0.0 }.with(8).unwrap();
        near(load.response_99, 15.999_96, 1e-5);
        // Alone: -ln(0.01) services.
        near(Station { service: 1.0, servers: 1, think: 3.0 }.with(1).unwrap().response_99, 100f64.ln(), 1e-6);
        near(Station { service: 1.0, servers: 9, think: 0.0 }.with(4).unwrap().response_99, 100f64.ln(), 1e-6);
    }

    #[test]
    fn thinking_clients_agree_with_simulation() {
        let station = Station { service: 0.02, servers: 3, think: 0.1 };
        for clients in [2, 20, 60] {
            let mut responses = simulated(station, clients);
            let count = responses.len() as f64;
            responses.sort_by(f64::total_cmp);
            let load = station.with(clients).unwrap();
            near(load.response, responses.iter().sum::<f64>() / count, 0.02);
            near(load.response_99, responses[responses.len() * 99 / 100], 0.02);
        }
    }

    #[test]
    fn mean_value_analysis_says_the_same() {
        let station = Station { service: 0.02, servers: 3, think: 0.1 };
        for (clients, throughput) in analysed(station, 40).into_iter().enumerate().skip(1) {
            near(station.with(clients).unwrap().throughput, throughput, 1e-9);
        }
    }

    /// Reiser and Lavenberg 1980, with a service rate that depends on the queue: clients are added one after the other.
    fn analysed(station: Station, clients: usize) -> Vec<f64> {
        let mut present = vec![1.0];
        let mut throughputs = vec![0.0];
        for clients in 1..=clients {
            let each = |at: usize| station.service / at.min(station.servers) as f64;
            let response: f64 = (1..=clients).map(|at| at as f64 * each(at) * present[at - 1]).sum();
            let throughput = clients as f64 / (response + station.think);
            let mut next = vec![0.0];
            next.extend((1..=clients).map(|at| throughput * each(at) * present[at - 1]));
            next[0] = 1.0 - next.iter().sum::<f64>();
            throughputs.push(throughput);
            present = next;
        }
        throughputs
    }

    #[test]
    fn many_clients_are_no_trouble() {
        let station = Station { service: 0.001, servers: 40, think: 2.0 };
        let load = station.with(100_000).unwrap();
        near(load.throughput, 40_000.0, 1e-9);
        near(load.response, 0.5, 1e-6);
        assert!(load.response_99 > load.response && load.response_99 < 0.52, "{load:?}");
        assert!(Station { servers: usize::MAX, ..station }.with(3).unwrap().response_99 > 0.0);
    }

    /// The response times of events in order of time, with exponential times: nothing of the formulas above.
    fn simulated(station: Station, clients: usize) -> Vec<f64> {
        let mut random = fastrand::Rng::with_seed(11);
        let mut exponential = |mean: f64| -mean * (1.0 - random.f64()).ln();
        let mut asks: Vec<f64> = (0..clients).map(|_| exponential(station.think)).collect();
        let mut free = vec![0.0f64; station.servers];
        let mut responses = Vec::new();
        while responses.len() < 200_000 {
            let client = (0..clients).min_by(|a, b| asks[*a].total_cmp(&asks[*b])).unwrap();
            let server = (0..station.servers).min_by(|a, b| free[*a].total_cmp(&free[*b])).unwrap();
            let end = asks[client].max(free[server]) + exponential(station.service);
            free[server] = end;
            responses.push(end - asks[client]);
            asks[client] = end + exponential(station.think);
        }
        responses
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
