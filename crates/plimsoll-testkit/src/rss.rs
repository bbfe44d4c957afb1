//! The resident memory of a process, as the kernel sees it: what the counting allocator cannot.
//!
//! All sizes are KiB, from `/proc/<pid>/status` and `/proc/<pid>/clear_refs` (proc_pid_status(5),
//! proc_pid_clear_refs(5)). The kernel counts by CPU and adds up now and then, so a figure may be some hundred KiB late:
//! a peak read just after the fact may even be a little below the memory that was seen.

use std::io;

/// The resident memory now (`VmRSS`).
///
/// # Errors
///
/// If there is no such process, or it is a zombie or a kernel thread and has no memory.
pub fn rss_kib(pid: u32) -> io::Result<u64> {
    status_kib(pid, "VmRSS:")
}

/// The most resident memory since the process began or [`reset_peak_rss`] (`VmHWM`).
///
/// # Errors
///
/// As [`rss_kib`].
pub fn peak_rss_kib(pid: u32) -> io::Result<u64> {
    status_kib(pid, "VmHWM:")
}

/// Makes what is resident now the peak.
///
/// # Errors
///
/// If there is no such process, it belongs to another user, or the kernel was built without page monitors.
pub fn reset_peak_rss(pid: u32) -> io::Result<()> {
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5")
}

fn status_kib(pid: u32, field: &str) -> io::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    status
        .lines()
        .find_map(|line| line.strip_prefix(field)?.trim().strip_suffix("kB")?.trim().parse().ok())
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("process {pid} has no {field} field")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_touched_is_resident() {
        let pid = std::process::id();
        let before = rss_kib(pid).expect("our own process");
        let touched = std::hint::black_box(vec![1_u8; 32 * 1024 * 1024]);
        let held = rss_kib(pid).expect("our own process");
        assert!(held >= before + 30 * 1024, "{before} KiB, then {held} KiB");
        drop(touched);
        let peak = peak_rss_kib(pid).expect("our own process");
        assert!(peak + 2 * 1024 >= held, "{held} KiB, but a peak of {peak} KiB");
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert!(rss_kib(u32::MAX).is_err());
        assert!(peak_rss_kib(u32::MAX).is_err());
    }
}
