//! The program and its libraries, by what the system has loaded.

use crate::mappings::Mapping;
use windows_sys::Win32::Foundation::{HANDLE, HMODULE};
use windows_sys::Win32::System::ProcessStatus::{
    K32EnumProcessModules, K32GetModuleFileNameExW, K32GetModuleInformation, MODULEINFO,
};
use windows_sys::Win32::System::Threading::GetCurrentProcess;

/// More of them are not looked at.
const MODULES_MAX: usize = 1024;
/// No path is longer, in units of UTF-16.
const PATH_MAX: usize = 32 << 10;

pub fn all() -> Vec<Mapping> {
    let mut modules = vec![std::ptr::null_mut(); MODULES_MAX];
    let (size, mut filled) = (size_of_val(&*modules) as u32, 0);
    // SAFETY: the handle means this process; so many bytes are there to be written.
    let process = unsafe { GetCurrentProcess() };
    // SAFETY: as above.
    if unsafe { K32EnumProcessModules(process, modules.as_mut_ptr(), size, &mut filled) } == 0 {
        return Vec::new();
    }
    modules.truncate(filled as usize / size_of::<HMODULE>());
    modules.into_iter().filter_map(|module| of(process, module)).collect()
}

/// Nothing of one that was unloaded meanwhile.
fn of(process: HANDLE, module: HMODULE) -> Option<Mapping> {
    let mut path = vec![0; PATH_MAX];
    // SAFETY: plain numbers, for which zeroes are good.
    let mut told: MODULEINFO = unsafe { std::mem::zeroed() };
    // SAFETY: both places are written within the sizes that are said; a module that is gone is refused.
    let len = unsafe {
        if K32GetModuleInformation(process, module, &mut told, size_of_val(&told) as u32) == 0 {
            return None;
        }
        K32GetModuleFileNameExW(process, module, path.as_mut_ptr(), PATH_MAX as u32)
    };
    let start = told.lpBaseOfDll.addr() as u64;
    let path = String::from_utf16_lossy(path.get(..len as usize).filter(|p| !p.is_empty())?);
    Some(Mapping { start, end: start + u64::from(told.SizeOfImage), offset: 0, path })
}
