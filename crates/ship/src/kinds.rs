//! The kinds of receivers: the first word behind `to`.

use crate::conf::Draft;
use crate::receiver::Target;
use std::sync::Arc;
use weir_module::{Cf, ConfResult};

/// One kind of receivers.
pub struct KindOf {
    /// The word behind `to`.
    pub name: &'static str,
    /// The directives that its block may have besides those of all.
    pub takes: &'static [&'static str],
    /// Checks what the block says when it ends: `d` is the `to`, whose addresses begin at argument 1. Opens nothing.
    pub check: fn(&mut Draft) -> ConfResult,
    /// After the configuration is read: files are read here, by [`Cf::read_file`].
    pub build: fn(&mut Cf, &Draft) -> ConfResult<Arc<dyn Target>>,
}

/// All kinds.
pub const KINDS: &[KindOf] = &[
    crate::elastic::ELASTICSEARCH,
    crate::elastic::OPENSEARCH,
    crate::kafka::KIND,
    crate::syslog::KIND,
    crate::otlp::KIND,
    crate::loki::KIND,
    crate::file::FILE,
];

pub fn find(name: &[u8]) -> Option<&'static KindOf> {
    KINDS.iter().find(|k| k.name.as_bytes() == name)
}
