//! What a server takes of the machine, by `/proc`: memory, descriptors, threads.

use crate::Server;
use std::fs;

/// The children of a process, and theirs, and itself.
fn family(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut at = 0;
    while let Some(pid) = all.get(at).copied() {
        at += 1;
        let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for task in tasks.flatten() {
            let list = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            all.extend(list.split_whitespace().filter_map(|n| n.parse::<u32>().ok()));
        }
    }
    all
}

fn status_kb(pid: u32, name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find(|l| l.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn entries(pid: u32, what: &str) -> usize {
    fs::read_dir(format!("/proc/{pid}/{what}")).map_or(0, Iterator::count)
}

impl Server {
    /// All of its processes, by the numbers that `/proc` has.
    fn processes(&self) -> Vec<u32> {
        crate::windows::system_pids(self.dir()).unwrap_or_else(|| family(self.pid()))
    }

    fn memory_of_all(&self, name: &str) -> u64 {
        let kb = self.processes().into_iter().filter_map(|pid| status_kb(pid, name));
        kb.sum::<u64>() * 1024
    }

    /// Memory that its processes use now, in bytes; `None` where the system does not tell. Pages of
    /// the program itself do not count: they come as its parts are first used.
    pub fn memory(&self) -> Option<u64> {
        let all = Some(self.memory_of_all("VmRSS:")).filter(|bytes| *bytes > 0)?;
        Some(all.saturating_sub(self.memory_of_all("RssFile:")))
    }

    /// The most that they have used at any time.
    pub fn memory_peak(&self) -> u64 {
        self.memory_of_all("VmHWM:").saturating_sub(self.memory_of_all("RssFile:"))
    }

    /// How much more than `before` it has ever used.
    pub fn memory_growth(&self, before: u64) -> u64 {
        self.memory_peak().saturating_sub(before)
    }

    /// Open descriptors of all its processes.
    pub fn descriptors(&self) -> usize {
        self.processes().into_iter().map(|pid| entries(pid, "fd")).sum()
    }

    /// Threads of all its processes.
    pub fn threads(&self) -> usize {
        self.processes().into_iter().map(|pid| entries(pid, "task")).sum()
    }

    /// Threads of that name of all its processes.
    pub fn threads_called(&self, name: &str) -> usize {
        let of =
            |pid: u32| fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let names = self.processes().into_iter().flat_map(of);
        let names = names.filter_map(|t| fs::read_to_string(t.path().join("comm")).ok());
        names.filter(|found| found.trim_end() == name).count()
    }

    /// Bytes that its processes have read from files (and from pipes and the like) by now, `sendfile`
    /// included; `None` where the system does not tell.
    pub fn bytes_read(&self) -> Option<u64> {
        self.io_of_all("rchar: ")
    }

    /// In how many calls they have read them.
    pub fn read_calls(&self) -> Option<u64> {
        self.io_of_all("syscr: ")
    }

    /// In how many calls they have written to files (and to pipes and the like) by now.
    pub fn write_calls(&self) -> Option<u64> {
        self.io_of_all("syscw: ")
    }

    fn io_of_all(&self, name: &str) -> Option<u64> {
        let of = |pid: u32| {
            let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
            text.lines().find_map(|l| l.strip_prefix(name))?.parse::<u64>().ok()
        };
        let known: Vec<u64> = self.processes().into_iter().filter_map(of).collect();
        (!known.is_empty()).then(|| known.iter().sum())
    }

    /// Processor time that its processes have taken, in ticks of the kernel's (mostly 10 ms).
    pub fn processor_ticks(&self) -> u64 {
        let of = |pid: u32| {
            let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let mut fields = text.rsplit(')').next()?.split_whitespace().skip(11);
            let user: u64 = fields.next()?.parse().ok()?;
            Some(user + fields.next()?.parse::<u64>().ok()?)
        };
        self.processes().into_iter().filter_map(of).sum()
    }
}
