//! The clock, and the kernel's chance.

use super::{Case, Judged};
use crate::finding::Finding;

/// Clocks that are read without a system call.
const QUICK: &[&str] = &[
    "tsc",
    "kvm-clock",
    "hyperv_clocksource_tsc_page",
    "arch_sys_counter",
    "timebase",
    "tod",
    "riscv_clocksource",
];

/// Dates are compared with those of others.
pub fn kept(case: &Case<'_>) -> Judged {
    let Some(is_kept) = case.system.clock_is_kept() else {
        return Err(std::io::ErrorKind::Unsupported.into());
    };
    Ok(vec![match is_kept {
        true => Finding::ok("synchronised", ""),
        false => Finding::warn(
            "not synchronised",
            match case.conf.tls.is_empty() {
                true => "ages of cached answers and times in logs go by a clock that nobody keeps right",
                false => "certificates, stapled answers and ages of cached answers go by a clock that nobody keeps right",
            },
            "systemctl enable --now systemd-timesyncd  (or chrony)",
        ),
    }])
}

/// Reading the clock is a part of every turn of a worker.
pub fn source(case: &Case<'_>) -> Judged {
    const DIR: &str = "/sys/devices/system/clocksource/clocksource0";
    let current = case.system.text(&format!("{DIR}/current_clocksource"))?;
    if QUICK.contains(&&*current) {
        return Ok(vec![Finding::ok(current, "")]);
    }
    let others = case.system.text(&format!("{DIR}/available_clocksource")).unwrap_or_default();
    let better = others.split_ascii_whitespace().find(|o| QUICK.contains(o));
    let why =
        "every look at the clock is a system call, at the least one for each turn of each worker";
    Ok(vec![match better {
        Some(b) => Finding::warn(current, why, format!("echo {b} > {DIR}/current_clocksource")),
        None => Finding::note(current, format!("{why}; the machine offers nothing quicker")),
    }])
}

/// Keys of TLS come of it.
pub fn entropy(case: &Case<'_>) -> Judged {
    /// All that kernels since 5.18 ever show, and more than a key needs.
    const ENOUGH_BITS: u64 = 200;
    if case.conf.tls.is_empty() {
        return Ok(Vec::new());
    }
    let bits = case.system.number("/proc/sys/kernel/random/entropy_avail")?;
    let figure = format!("{bits} bits");
    Ok(vec![match bits {
        ENOUGH_BITS.. => Finding::ok(figure, ""),
        _ => Finding::warn(
            figure,
            "soon after the machine's start handshakes wait for it",
            "install rng-tools or haveged, or give the machine a virtio-rng",
        ),
    }])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{conf, Fake};
    use crate::finding::Severity::{self, Note, Ok as Well, Warn};

    fn judge(check: fn(&Case<'_>) -> Judged, system: &Fake) -> Severity {
        let conf = conf("http { server { listen 443 ssl; } }");
        check(&Case { conf: &conf, system, running: None, receivers: Ok(&[]), told: Ok(None) })
            .unwrap()[0]
            .severity
    }

    #[test]
    fn clocks() {
        let with = |is_kept| Fake { is_kept: Some(is_kept), ..Fake::default() };
        assert_eq!((judge(kept, &with(true)), judge(kept, &with(false))), (Well, Warn));
        let dir = "/sys/devices/system/clocksource/clocksource0";
        let with = |now: &str, there: &str| {
            let (current, available) =
                (format!("{dir}/current_clocksource"), format!("{dir}/available_clocksource"));
            judge(source, &Fake::with(&[(&current, now), (&available, there)]))
        };
        assert_eq!(with("tsc\n", ""), Well);
        assert_eq!(with("hpet", "tsc hpet"), Warn);
        assert_eq!(with("acpi_pm", "acpi_pm"), Note);
    }

    #[test]
    fn chance() {
        let with = |bits: &str| {
            judge(entropy, &Fake::with(&[("/proc/sys/kernel/random/entropy_avail", bits)]))
        };
        assert_eq!((with("256"), with("90")), (Well, Warn));
    }
}
