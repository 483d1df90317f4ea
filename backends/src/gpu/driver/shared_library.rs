//! Shared libraries that are found when a program runs: where libraries are, or in the folders in which their Python
//! packages and the toolkit have them.
#![allow(unsafe_code)]

#[cfg(target_os = "linux")]
use std::ffi::CString;
use std::ffi::{CStr, c_void};
use std::path::{Path, PathBuf};

/// Folders in which Python packages and the toolkit have a library; `packages` are folders of packages below `nvidia`.
pub(crate) fn folders(packages: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for name in ["CUDA_HOME", "CUDA_PATH"] {
        found.extend(std::env::var_os(name).map(|v| PathBuf::from(v).join("lib64")));
    }
    found.push("/usr/local/cuda/lib64".into());
    let own = std::env::var_os("VIRTUAL_ENV").map(PathBuf::from);
    for root in own.into_iter().chain(["/usr/local".into(), "/usr".into()]) {
        let entries = std::fs::read_dir(root.join("lib")).into_iter().flatten();
        let mut pythons: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
        pythons
            .retain(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("python")));
        pythons.sort();
        for python in pythons {
            for part in ["site-packages", "dist-packages"] {
                let all = python.join(part).join("nvidia");
                found.extend(packages.iter().map(|package| all.join(package)));
            }
        }
    }
    found
}

/// The address of a function of a library.
pub(crate) type FunctionAddress = *mut c_void;

/// Opens a library of one of these names in a folder, for the rest of the process; in no folder, where libraries are.
#[cfg(target_os = "linux")]
pub(crate) fn open(folder: &Path, names: &[&str]) -> bool {
    let in_folder = !folder.as_os_str().is_empty();
    names.iter().any(|name| {
        let path = folder.join(name);
        (!in_folder || path.is_file())
            && !opened(&path, libc::RTLD_NOW | libc::RTLD_GLOBAL).is_null()
    })
}

/// The handle of a library, null where there is none.
#[cfg(target_os = "linux")]
fn opened(path: &Path, how: libc::c_int) -> *mut c_void {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return std::ptr::null_mut() };
    // SAFETY: the path ends with 0; opening runs what the library does when it is loaded.
    unsafe { libc::dlopen(path.as_ptr(), how) }
}

/// A function of a library of one of these names that is open.
#[cfg(target_os = "linux")]
pub(crate) fn symbol(names: &[&str], function: &CStr) -> Option<FunctionAddress> {
    let open = |name: &&str| opened(Path::new(name), libc::RTLD_NOW | libc::RTLD_NOLOAD);
    let handle = names.iter().map(open).find(|handle| !handle.is_null())?;
    // SAFETY: the handle is that of an open library, which is never closed, and the name ends with 0.
    let found = unsafe { libc::dlsym(handle, function.as_ptr()) };
    (!found.is_null()).then_some(found)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn open(_: &Path, _: &[&str]) -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn symbol(_: &[&str], _: &CStr) -> Option<FunctionAddress> {
    None
}
