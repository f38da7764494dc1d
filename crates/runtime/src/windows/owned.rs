//! Objects with names, which any program may make before this one: whose they are is seen by who owns them and who may open
//! them. One that is not as this process would have made it is another's.

use std::ffi::c_void;
use std::io;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::sync::atomic::{AtomicU32, Ordering};
use windows_sys::Win32::Foundation::{LocalFree, HANDLE};
use windows_sys::Win32::Security::Authorization::{
    ConvertSecurityDescriptorToStringSecurityDescriptorW,
    ConvertStringSecurityDescriptorToSecurityDescriptorW, GetSecurityInfo, SDDL_REVISION_1,
    SE_KERNEL_OBJECT,
};
use windows_sys::Win32::Security::{
    DACL_SECURITY_INFORMATION, OWNER_SECURITY_INFORMATION, PSECURITY_DESCRIPTOR,
    SECURITY_ATTRIBUTES,
};

/// Gives back what the system has made.
struct Local(*mut c_void);

impl Drop for Local {
    fn drop(&mut self) {
        // SAFETY: the system's, and used no more.
        unsafe { LocalFree(self.0) };
    }
}

/// Has an object made with those rights, in the system's own words for them.
///
/// # Errors
///
/// The system's.
pub(super) fn with_rights<T>(
    rights: &str,
    make: impl FnOnce(*const SECURITY_ATTRIBUTES) -> io::Result<T>,
) -> io::Result<T> {
    let rights: Vec<u16> = rights.encode_utf16().chain([0]).collect();
    let mut descriptor = std::ptr::null_mut();
    // SAFETY: a text that ends in a zero; the descriptor is the system's, and is given back behind the call.
    let is_made = unsafe {
        ConvertStringSecurityDescriptorToSecurityDescriptorW(
            rights.as_ptr(),
            SDDL_REVISION_1,
            &mut descriptor,
            std::ptr::null_mut(),
        )
    };
    if is_made == 0 {
        return Err(io::Error::last_os_error());
    }
    let descriptor = Local(descriptor);
    make(&SECURITY_ATTRIBUTES {
        nLength: size_of::<SECURITY_ATTRIBUTES>() as u32,
        lpSecurityDescriptor: descriptor.0,
        bInheritHandle: 0,
    })
}

/// Who owns an object, and who may do what with it, in the system's own words.
fn described(object: HANDLE) -> io::Result<Vec<u16>> {
    const WHAT: u32 = OWNER_SECURITY_INFORMATION | DACL_SECURITY_INFORMATION;
    let mut descriptor: PSECURITY_DESCRIPTOR = std::ptr::null_mut();
    let none = std::ptr::null_mut;
    // SAFETY: the handle is open; what is not asked for has no room. What the system makes is given back, after it was copied.
    unsafe {
        let code = GetSecurityInfo(
            object,
            SE_KERNEL_OBJECT,
            WHAT,
            none(),
            none(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            &mut descriptor,
        );
        if code != 0 {
            return Err(io::Error::from_raw_os_error(code as i32));
        }
        let descriptor = Local(descriptor);
        let (mut text, mut len) = (std::ptr::null_mut(), 0);
        let done = ConvertSecurityDescriptorToStringSecurityDescriptorW(
            descriptor.0,
            SDDL_REVISION_1,
            WHAT,
            &mut text,
            &mut len,
        );
        if done == 0 {
            return Err(io::Error::last_os_error());
        }
        let text = Local(text.cast());
        let words = std::slice::from_raw_parts(text.0.cast::<u16>(), len as usize);
        Ok(words.iter().copied().take_while(|word| *word != 0).collect())
    }
}

/// A name that nobody else has.
pub(super) fn fresh_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    format!("weir-{}-{count}-{}", std::process::id(), now.map_or(0, |t| t.as_nanos()))
}

/// Whether an object is as another that this process has just made.
///
/// # Errors
///
/// The system's; it is not, and somebody else's.
pub(super) fn check(object: &OwnedHandle, own: &OwnedHandle) -> io::Result<()> {
    match described(object.as_raw_handle())? == described(own.as_raw_handle())? {
        true => Ok(()),
        false => Err(io::Error::other("another program has made it")),
    }
}

/// The handle that a call has made, and whether there was such an object before.
///
/// # Safety
///
/// The handle, if there is one, is nobody else's.
pub(super) unsafe fn made(handle: HANDLE) -> io::Result<(OwnedHandle, bool)> {
    let said = io::Error::last_os_error();
    if handle.is_null() {
        return Err(said);
    }
    const EXISTS: i32 = windows_sys::Win32::Foundation::ERROR_ALREADY_EXISTS as i32;
    // SAFETY: as above.
    Ok((unsafe { OwnedHandle::from_raw_handle(handle) }, said.raw_os_error() == Some(EXISTS)))
}
