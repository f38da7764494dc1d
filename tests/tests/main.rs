//! Every black-box test, one file per module and aspect.

#![allow(clippy::unwrap_used)]

mod harness_self;
