//! The workers of a run, with their hosts and processes, and the ids of all of these in the pod.

use outlive::membership::InstanceId;

/// The maximum number of hosts of a run.
pub const MOST_HOSTS: u32 = 1024;

/// The number of ids for additional members: a process that inspects the pod, and workers started
/// from outside the run, each with ids for a host, a process and a thread.
const OTHERS: u32 = 1 + 3 * 16;

/// The hosts and workers of a run. Hosts have the ids from 0; the last of them are on standby at
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crew {
    /// The number of hosts, spares included.
    pub hosts: u32,
    /// The number of spares, which are the last hosts. They work when other hosts have stopped
    /// working.
    pub spares: u32,
    /// The number of processes of each host.
    pub processes: u32,
    /// The number of workers of each process.
    pub threads: u32,
    /// The id of the first process. The ids of the other processes follow, host by host.
    pub first_process: InstanceId,
    /// The id of the first worker. The ids of the other workers follow, process by process.
    pub first_worker: InstanceId,
}

impl Crew {
    /// Returns a crew with a driver. The ids are, in this order: the hosts, the driver's host, the
    /// processes, the driver's process and its thread, the workers.
    pub fn with_driver(hosts: u32, processes: u32, threads: u32) -> Self {
        let first_process = hosts + 1;
        Self {
            hosts,
            spares: 0,
            processes,
            threads,
            first_process,
            first_worker: first_process + hosts * processes + 2,
        }
    }

    /// Returns the same crew with `spares` additional hosts, which are on standby.
    ///
    /// ```
    /// use outlive_run::crew::Crew;
    /// let crew = Crew::with_driver(4, 1, 2).and_spares(1);
    /// assert_eq!((crew.workers(), crew.places()), (10, 8));
    /// assert!(crew.is_spare(4) && !crew.is_spare(3));
    /// ```
    #[must_use]
    pub fn and_spares(self, spares: u32) -> Self {
        let all = Self::with_driver(self.hosts + spares, self.processes, self.threads);
        Self { spares, ..all }
    }

    /// Returns whether `host` is one of those that are on standby at first.
    pub fn is_spare(&self, host: u32) -> bool {
        (self.hosts - self.spares..self.hosts).contains(&host)
    }

    /// Returns the number of workers that work at the same time: all but those of spares.
    pub fn places(&self) -> u32 {
        (self.hosts - self.spares) * self.processes * self.threads
    }

    /// Returns the numbers of the workers of `host`.
    pub fn workers_of(&self, host: u32) -> std::ops::Range<u32> {
        let each = self.processes * self.threads;
        host * each..(host + 1) * each
    }

    /// Returns the number of workers, those of spares included.
    pub fn workers(&self) -> u32 {
        self.hosts * self.processes * self.threads
    }

    /// Returns the number of ids, those for additional members included.
    pub fn ids(&self) -> u32 {
        self.first_worker + self.workers() + OTHERS
    }

    /// Returns the id of the first process of `host`.
    pub fn first_of(&self, host: u32) -> InstanceId {
        self.first_process + host * self.processes
    }

    /// Returns the id of the driver's process in a crew with a driver: the one after the hosts'.
    pub fn driver(&self) -> InstanceId {
        self.first_of(self.hosts)
    }

    /// Returns the id of the driver's thread in a crew with a driver.
    pub fn driver_thread(&self) -> InstanceId {
        self.driver() + 1
    }

    /// Returns the host of a process; for the driver's process, the number of hosts.
    pub fn host_of(&self, process: InstanceId) -> Option<u32> {
        let index = process.checked_sub(self.first_process)?;
        Some(index / self.processes).filter(|host| *host <= self.hosts)
    }

    /// Returns the index of the process with this id among those of the hosts, host by host; `None`
    /// if it is not one of them.
    pub fn process_at(&self, id: InstanceId) -> Option<u32> {
        let index = id.checked_sub(self.first_process)?;
        (index < self.hosts * self.processes).then_some(index)
    }

    /// Returns the id of worker `number`.
    pub fn id_of(&self, number: u32) -> InstanceId {
        self.first_worker + number
    }

    /// Returns the number of the worker with this id, if it is a worker's.
    pub fn worker_of(&self, id: InstanceId) -> Option<u32> {
        let number = id.checked_sub(self.first_worker)?;
        (number < self.workers()).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_an_id() {
        let crew = Crew::with_driver(3, 2, 4);
        assert_eq!(
            (crew.first_of(0), crew.first_of(2), crew.driver()),
            (4, 8, 10)
        );
        assert_eq!(
            (crew.driver_thread(), crew.id_of(0), crew.workers()),
            (11, 12, 24)
        );
        let hosts: Vec<_> = (3..12).map(|id| crew.host_of(id)).collect();
        let of = |host| Some(host);
        assert_eq!(
            hosts,
            [None, of(0), of(0), of(1), of(1), of(2), of(2), of(3), of(3)]
        );
        assert_eq!((crew.process_at(9), crew.process_at(10)), (Some(5), None));
        assert_eq!((crew.worker_of(11), crew.worker_of(12)), (None, Some(0)));
        assert_eq!((crew.worker_of(35), crew.worker_of(36)), (Some(23), None));
        assert_eq!(crew.ids(), 36 + OTHERS);
    }
}
