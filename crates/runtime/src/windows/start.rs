//! Starting a program: it inherits its three ends and no other handle, whatever else of this process could be inherited, and
//! it is in its job from its first moment on.

use crate::program::words;
use std::ffi::c_void;
use std::io;
use std::os::windows::ffi::{OsStrExt, OsStringExt};
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::path::{Path, PathBuf};
use windows_sys::Win32::Foundation::{
    CloseHandle, DuplicateHandle, DUPLICATE_SAME_ACCESS, ERROR_FILE_NOT_FOUND, HANDLE,
    INVALID_HANDLE_VALUE,
};
use windows_sys::Win32::System::Console::{GetStdHandle, STD_HANDLE};
use windows_sys::Win32::System::JobObjects::{
    CreateJobObjectW, JobObjectExtendedLimitInformation, SetInformationJobObject,
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION, JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
};
use windows_sys::Win32::System::SystemInformation::{
    GetSystemDirectoryW, GetSystemWindowsDirectoryW,
};
use windows_sys::Win32::System::Threading::{
    CreateProcessW, DeleteProcThreadAttributeList, GetCurrentProcess,
    InitializeProcThreadAttributeList, UpdateProcThreadAttribute, CREATE_UNICODE_ENVIRONMENT,
    EXTENDED_STARTUPINFO_PRESENT, PROCESS_CREATION_FLAGS, PROCESS_INFORMATION,
    PROC_THREAD_ATTRIBUTE_HANDLE_LIST, PROC_THREAD_ATTRIBUTE_JOB_LIST, STARTF_USESTDHANDLES,
    STARTUPINFOEXW, STARTUPINFOW,
};

/// What is started, and with what.
pub(super) struct Launch<'a> {
    pub(super) file: &'a Path,
    /// Of [`words::line`], and of [`words::block`].
    pub(super) line: Vec<u16>,
    pub(super) variables: Vec<u16>,
    /// Standard input, output and error; a null one is none.
    pub(super) ends: [HANDLE; 3],
    pub(super) flags: PROCESS_CREATION_FLAGS,
    pub(super) job: Option<&'a OwnedHandle>,
}

fn last_error<T>() -> io::Result<T> {
    Err(io::Error::last_os_error())
}

/// A copy that is inherited, where it is named.
fn to_inherit(handle: HANDLE) -> io::Result<Option<OwnedHandle>> {
    if handle.is_null() || handle == INVALID_HANDLE_VALUE {
        return Ok(None);
    }
    let mut copy = std::ptr::null_mut();
    // SAFETY: this process' pseudo handle, a handle that is open meanwhile, and a value of this frame that the call fills.
    unsafe {
        let here = GetCurrentProcess();
        match DuplicateHandle(here, handle, here, &mut copy, 0, 1, DUPLICATE_SAME_ACCESS) {
            0 => last_error(),
            _ => Ok(Some(OwnedHandle::from_raw_handle(copy))),
        }
    }
}

/// What is said beside the usual: two lists, which are borrowed.
struct Attributes<'a> {
    room: Vec<usize>,
    lists: std::marker::PhantomData<&'a [HANDLE]>,
}

impl<'a> Attributes<'a> {
    fn new(lists: [(u32, &'a [HANDLE]); 2]) -> io::Result<Attributes<'a>> {
        let lists: Vec<_> = lists.into_iter().filter(|(_, list)| !list.is_empty()).collect();
        let count = lists.len() as u32;
        let mut bytes = 0;
        // SAFETY: without room the call tells how much it needs, with so much it fills it; the lists outlive this value, and
        // each is as long as is said.
        unsafe {
            InitializeProcThreadAttributeList(std::ptr::null_mut(), count, 0, &mut bytes);
            let mut room = vec![0; bytes.div_ceil(size_of::<usize>())];
            let at = room.as_mut_ptr().cast();
            if InitializeProcThreadAttributeList(at, count, 0, &mut bytes) == 0 {
                return last_error();
            }
            let mut this = Attributes { room, lists: std::marker::PhantomData };
            for (what, list) in lists {
                let (value, bytes) = (list.as_ptr().cast::<c_void>(), size_of_val(list));
                let (none, at) = (std::ptr::null_mut(), this.at());
                if UpdateProcThreadAttribute(at, 0, what as usize, value, bytes, none, none.cast())
                    == 0
                {
                    return last_error();
                }
            }
            Ok(this)
        }
    }

    fn at(&mut self) -> *mut c_void {
        self.room.as_mut_ptr().cast()
    }
}

impl Drop for Attributes<'_> {
    fn drop(&mut self) {
        // SAFETY: it was made by its own call.
        unsafe { DeleteProcThreadAttributeList(self.at()) };
    }
}

impl Launch<'_> {
    /// Its number, and itself.
    ///
    /// # Errors
    ///
    /// The system's, and nothing is left of the attempt.
    pub(super) fn start(mut self) -> io::Result<(u32, OwnedHandle)> {
        let file: Vec<u16> = self.file.as_os_str().encode_wide().chain([0]).collect();
        let own: Vec<Option<OwnedHandle>> =
            self.ends.iter().map(|end| to_inherit(*end)).collect::<io::Result<_>>()?;
        let raw = |end: &OwnedHandle| end.as_raw_handle();
        let inherited: Vec<HANDLE> = own.iter().flatten().map(raw).collect();
        let jobs: Vec<HANDLE> = self.job.into_iter().map(raw).collect();
        let mut attributes = Attributes::new([
            (PROC_THREAD_ATTRIBUTE_HANDLE_LIST, &inherited),
            (PROC_THREAD_ATTRIBUTE_JOB_LIST, &jobs),
        ])?;
        let end = |at: usize| own[at].as_ref().map_or(std::ptr::null_mut(), raw);
        let start = STARTUPINFOEXW {
            StartupInfo: STARTUPINFOW {
                cb: size_of::<STARTUPINFOEXW>() as u32,
                dwFlags: STARTF_USESTDHANDLES,
                hStdInput: end(0),
                hStdOutput: end(1),
                hStdError: end(2),
                ..STARTUPINFOW::default()
            },
            lpAttributeList: attributes.at(),
        };
        let flags = self.flags | EXTENDED_STARTUPINFO_PRESENT | CREATE_UNICODE_ENVIRONMENT;
        let mut made = PROCESS_INFORMATION::default();
        // SAFETY: texts that end in a zero, of which the line may be written to, a block that ends in two, and what the
        // attributes name; all of it outlives the call. The handles are nobody else's.
        unsafe {
            let done = CreateProcessW(
                file.as_ptr(),
                self.line.as_mut_ptr(),
                std::ptr::null(),
                std::ptr::null(),
                i32::from(!inherited.is_empty()),
                flags,
                self.variables.as_ptr().cast(),
                std::ptr::null(),
                &start.StartupInfo,
                &mut made,
            );
            if done == 0 {
                return last_error();
            }
            CloseHandle(made.hThread);
            Ok((made.dwProcessId, OwnedHandle::from_raw_handle(made.hProcess)))
        }
    }
}

/// One of this process' own.
pub(super) fn standard(which: STD_HANDLE) -> HANDLE {
    // SAFETY: a number.
    unsafe { GetStdHandle(which) }
}

/// What ends, with all that it has started, when its last handle is closed: with this process at the latest.
pub(super) fn job() -> io::Result<OwnedHandle> {
    let mut limits = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
    limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
    let bytes = size_of_val(&limits) as u32;
    let limits = std::ptr::from_ref(&limits).cast();
    // SAFETY: no name and no rights; the handle is nobody else's, and the value is what that setting takes.
    unsafe {
        let job = CreateJobObjectW(std::ptr::null(), std::ptr::null());
        if job.is_null() {
            return last_error();
        }
        let own = OwnedHandle::from_raw_handle(job);
        match SetInformationJobObject(job, JobObjectExtendedLimitInformation, limits, bytes) {
            0 => last_error(),
            _ => Ok(own),
        }
    }
}

fn told(ask: unsafe extern "system" fn(*mut u16, u32) -> u32) -> PathBuf {
    let mut room = [0u16; 512];
    // SAFETY: so much room, of which the call tells how much it has filled, or that it needs more.
    let len = unsafe { ask(room.as_mut_ptr(), room.len() as u32) } as usize;
    PathBuf::from(std::ffi::OsString::from_wide(room.get(..len).unwrap_or_default()))
}

/// Where the system has its own programs.
pub(super) fn system_folder() -> PathBuf {
    told(GetSystemDirectoryW)
}

/// This process' variables, and these; or these alone, and what is needed.
pub(super) fn variables(own: bool, given: &[&[u8]]) -> io::Result<Vec<u16>> {
    let pair = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        [name.as_encoded_bytes(), b"=", value.as_encoded_bytes()].concat()
    };
    let of_process: Vec<Vec<u8>> = match own {
        true => std::env::vars_os().map(pair).collect(),
        false => Vec::new(),
    };
    // One that is not UTF-8 cannot be handed on by its bytes.
    let of_process =
        of_process.iter().map(Vec::as_slice).filter(|v| std::str::from_utf8(v).is_ok());
    // Without them a program does not find the system's libraries, and the shell no other program.
    let root = told(GetSystemWindowsDirectoryW);
    let path = format!("PATH={};{}", system_folder().display(), root.display());
    let needed = [format!("SystemRoot={}", root.display()), path];
    words::block(given.iter().copied().chain(of_process), &needed)
}

/// The file of that name: what says a way stands for itself, other names are looked for where this process' variables say,
/// beside this program, as the system has it, and among its own.
pub(super) fn found(name: &[u8]) -> io::Result<PathBuf> {
    let name = std::str::from_utf8(name).map_err(|_| io::ErrorKind::InvalidInput)?;
    let endings: &[&str] = match Path::new(name).extension() {
        Some(_) => &["", ".exe"],
        None => &[".exe", ".com"],
    };
    let in_folder = |folder: &Path| {
        let mut files = endings.iter().map(|ending| folder.join(format!("{name}{ending}")));
        files.find(|path| path.is_file())
    };
    let none = || io::Error::from_raw_os_error(ERROR_FILE_NOT_FOUND as i32);
    let path = match name {
        "" => None,
        way if way.contains(['/', '\\', ':']) => {
            let as_it_is = Some(PathBuf::from(way)).filter(|path| path.is_file());
            as_it_is.or_else(|| in_folder(Path::new("")))
        }
        _ => {
            let path = std::env::var_os("PATH").unwrap_or_default();
            // Not where this process happens to be.
            let folders = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
            let program = std::env::current_exe().ok();
            let beside = program.as_deref().and_then(Path::parent).map(Path::to_path_buf);
            folders.chain(beside).chain([system_folder()]).find_map(|folder| in_folder(&folder))
        }
    };
    let path = std::path::absolute(path.ok_or_else(none)?)?;
    match words::is_batch(&path.to_string_lossy()) {
        true => Err(io::Error::other("a batch file is started by a line, not by words")),
        false => Ok(path),
    }
}
