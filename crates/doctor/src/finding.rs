//! What a check has found.

use std::fmt::Display;

/// How bad it is; the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing to mend.
    Ok,
    /// Worth knowing, and nothing to mend.
    Note,
    /// It could not be looked at.
    Unknown,
    /// It will hurt under load, or before long.
    Warn,
    /// It hurts now, or clients are refused.
    Error,
}

impl Severity {
    /// As the report says it.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Ok => "ok",
            Severity::Note => "note",
            Severity::Unknown => "unknown",
            Severity::Warn => "warning",
            Severity::Error => "error",
        }
    }
}

/// One line of the report, and what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    /// What was read, with its name.
    pub figure: String,
    /// Why it matters for this configuration.
    pub why: String,
    /// The command or directive that mends it.
    pub mend: String,
}

impl Finding {
    fn new(severity: Severity, figure: impl Display, why: impl Display) -> Finding {
        let (figure, why) = (figure.to_string(), why.to_string());
        Finding { severity, figure, why, mend: String::new() }
    }

    pub fn ok(figure: impl Display, why: impl Display) -> Finding {
        Finding::new(Severity::Ok, figure, why)
    }

    pub fn note(figure: impl Display, why: impl Display) -> Finding {
        Finding::new(Severity::Note, figure, why)
    }

    pub fn unknown(figure: impl Display, why: impl Display) -> Finding {
        Finding::new(Severity::Unknown, figure, why)
    }

    pub fn warn(figure: impl Display, why: impl Display, mend: impl Display) -> Finding {
        Finding { mend: mend.to_string(), ..Finding::new(Severity::Warn, figure, why) }
    }

    pub fn error(figure: impl Display, why: impl Display, mend: impl Display) -> Finding {
        Finding { mend: mend.to_string(), ..Finding::new(Severity::Error, figure, why) }
    }

    /// A note may say what would mend it, too.
    pub fn mend(mut self, mend: impl Display) -> Finding {
        self.mend = mend.to_string();
        self
    }
}
