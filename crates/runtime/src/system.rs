//! How busy the machine is: its load, memory and processors, as `/proc` says.

use crate::kept_file::KeptFile;

static LOAD: KeptFile = KeptFile::new("/proc/loadavg");
#[cfg(not(windows))]
static MEMORY: KeptFile = KeptFile::new("/proc/meminfo");
#[cfg(not(windows))]
static CPU: KeptFile = KeptFile::new("/proc/stat");

/// What the machine's memory comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// What is free or could be at once: free, buffers and cached files.
    pub free_bytes: u64,
    /// How much of the swap space is used, in percent; 0 where there is none.
    pub swap_percent: u64,
}

/// Time that the processors have spent, all together, since the machine began; in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// In programs and the kernel.
    pub busy: u64,
    /// That and all else but what was another machine's.
    pub all: u64,
}

/// The load of the last minute in thousandths; `None` where the system does not say, as with the others.
pub fn load() -> Option<u64> {
    load_of(LOAD.read()?.as_bytes())
}

/// What memory there is.
#[cfg(not(windows))]
pub fn memory() -> Option<Memory> {
    memory_of(&MEMORY.read()?)
}

/// What memory there is; page files are its swap space.
#[cfg(windows)]
pub fn memory() -> Option<Memory> {
    use windows_sys::Win32::System::SystemInformation::{GlobalMemoryStatusEx, MEMORYSTATUSEX};
    let size = size_of::<MEMORYSTATUSEX>() as u32;
    let mut found = MEMORYSTATUSEX { dwLength: size, ..MEMORYSTATUSEX::default() };
    // SAFETY: so much room as is said.
    match unsafe { GlobalMemoryStatusEx(&mut found) } {
        0 => None,
        _ => Some(Memory { free_bytes: found.ullAvailPhys, swap_percent: page_files().percent() }),
    }
}

/// Page files, all together, in pages.
#[cfg(windows)]
#[derive(Default)]
struct PageFiles {
    all: u64,
    used: u64,
}

#[cfg(windows)]
impl PageFiles {
    fn percent(&self) -> u64 {
        self.used.saturating_mul(100).checked_div(self.all).unwrap_or(0)
    }
}

/// None, where the system does not say.
#[cfg(windows)]
fn page_files() -> PageFiles {
    use std::ffi::c_void;
    use windows_sys::core::{BOOL, PCWSTR};
    use windows_sys::Win32::System::ProcessStatus::{
        K32EnumPageFilesW, ENUM_PAGE_FILE_INFORMATION,
    };
    unsafe extern "system" fn add(
        sum: *mut c_void,
        file: *mut ENUM_PAGE_FILE_INFORMATION,
        _: PCWSTR,
    ) -> BOOL {
        // SAFETY: the value that the call below was lent, and one of the system's.
        unsafe {
            let (sum, file) = (&mut *sum.cast::<PageFiles>(), &*file);
            sum.all += file.TotalSize as u64;
            sum.used += file.TotalInUse as u64;
        }
        1
    }
    let mut sum = PageFiles::default();
    // SAFETY: the value is used by this call alone, which has ended when it is read.
    unsafe { K32EnumPageFilesW(Some(add), std::ptr::from_mut(&mut sum).cast()) };
    sum
}

/// What the processors have done.
#[cfg(not(windows))]
pub fn cpu_times() -> Option<CpuTimes> {
    cpu_of(&CPU.read()?)
}

/// What the processors have done.
#[cfg(windows)]
pub fn cpu_times() -> Option<CpuTimes> {
    use windows_sys::Win32::Foundation::FILETIME;
    use windows_sys::Win32::System::Threading::GetSystemTimes;
    let [mut idle, mut kernel, mut user] = [FILETIME::default(); 3];
    let ticks = |t: FILETIME| u64::from(t.dwHighDateTime) << 32 | u64::from(t.dwLowDateTime);
    // SAFETY: values of this frame.
    match unsafe { GetSystemTimes(&mut idle, &mut kernel, &mut user) } {
        0 => None,
        _ => {
            // The kernel's have the idle ones in them.
            let all = ticks(kernel).saturating_add(ticks(user));
            Some(CpuTimes { busy: all.saturating_sub(ticks(idle)), all })
        }
    }
}

/// How many processors this process may use.
pub fn cpus() -> u64 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u64)
}

fn load_of(text: &[u8]) -> Option<u64> {
    let first = text.split(|b| *b == b' ').next()?;
    weir_base::units::parse_fixed(first, 3)
}

#[cfg(any(not(windows), test))]
fn memory_of(text: &str) -> Option<Memory> {
    let kib = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_ascii_whitespace().next()?.parse().ok()
    };
    let free = kib("MemFree")? + kib("Buffers").unwrap_or(0) + kib("Cached").unwrap_or(0);
    let (swap, free_swap) = (kib("SwapTotal").unwrap_or(0), kib("SwapFree").unwrap_or(0));
    let used = swap.saturating_sub(free_swap) * 100;
    Some(Memory { free_bytes: free * 1024, swap_percent: used.checked_div(swap).unwrap_or(0) })
}

#[cfg(any(not(windows), test))]
fn cpu_of(text: &str) -> Option<CpuTimes> {
    let line = text.lines().find_map(|l| l.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_ascii_whitespace().map_while(|n| n.parse().ok()).collect();
    // user, nice, system; idle, waiting, interrupts of two kinds.
    let busy = ticks.get(..3)?.iter().sum();
    Some(CpuTimes { busy, all: ticks.iter().take(7).sum() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read() {
        assert_eq!(load_of(b"0.52 0.58 0.59 2/612 12345\n"), Some(520));
        assert_eq!(load_of(b""), None);
        let text =
            "MemTotal: 100 kB\nMemFree: 10 kB\nBuffers: 5 kB\nCached: 20 kB\nSwapCached: 9 kB\n\
                    SwapTotal: 40 kB\nSwapFree: 30 kB\n";
        let memory = Memory { free_bytes: 35 * 1024, swap_percent: 25 };
        assert_eq!(memory_of(text), Some(memory));
        assert_eq!(memory_of("MemFree: 1 kB").map(|m| m.swap_percent), Some(0));
        assert_eq!(memory_of(""), None);
        let times = cpu_of("cpu  10 1 5 80 2 1 1 7 0 0\ncpu0 1 1\n");
        assert_eq!(times, Some(CpuTimes { busy: 16, all: 100 }));
    }

    #[cfg(windows)]
    #[test]
    fn shares_of_page_files() {
        assert_eq!(PageFiles { all: 300, used: 100 }.percent(), 33);
        assert_eq!(PageFiles::default().percent(), 0);
        assert!(page_files().percent() <= 100 && memory().is_some_and(|m| m.free_bytes > 0));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_has_them() {
        assert!(load().is_some() && cpu_times().is_some_and(|t| t.all >= t.busy));
        assert!(memory().is_some_and(|m| m.free_bytes > 0) && cpus() > 0);
    }
}
