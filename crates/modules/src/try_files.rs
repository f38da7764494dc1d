//! `try_files`: nginx's `ngx_http_try_files_module`. Its row is among the core's.

use crate::files;
use std::rc::Rc;
use weir_core::Session;
use weir_http::conf::{CoreLoc, TryLast};
use weir_http::module::{Flow, HttpModule, PhaseHandler};
use weir_http::redirect::{internal_redirect, named_location};
use weir_http::{Phase, Request};

pub const MODULE: HttpModule = HttpModule {
    phases: &[PhaseHandler {
        phase: Phase::Precontent,
        handler: handle,
        active: |slots| slots.get::<CoreLoc>().try_files.is_some(),
    }],
    ..HttpModule::EMPTY
};

fn handle(r: &mut Request) -> Flow {
    let loc = Rc::clone(r.loc());
    let core = &loc.core;
    let Some(conf) = &core.try_files else { return Flow::Declined };
    let mut root = Vec::with_capacity(128);
    core.root_into(r, &mut root);
    let alias = *core.alias;
    let name = core.alias_name.clone().unwrap_or_default();
    for t in &conf.files {
        let mut tested = r.eval(&t.path);
        if t.directory && tested.last() == Some(&b'/') {
            tested.pop();
        }
        let mut path = root.clone();
        // An alias stands for the location's name, which the tested URI may begin with.
        match alias && !core.alias_is_whole && tested.starts_with(&name) {
            true => path.extend_from_slice(&tested[name.len()..]),
            false => path.extend_from_slice(&tested),
        }
        if files::test(r, &path) != Some(t.directory) {
            continue;
        }
        let uri = match alias && !core.alias_is_whole && !tested.starts_with(&name) {
            true => [name.as_slice(), tested.as_slice()].concat(),
            false => tested,
        };
        // What a regex location's alias names is followed by what was chosen here.
        if !(alias && core.alias_is_whole && t.directory) {
            r.uri = uri;
            r.flags.add_uri_to_alias = alias && core.alias_is_whole;
        }
        return Flow::Declined;
    }
    fall_back(r, &conf.last)
}

fn fall_back(r: &mut Request, last: &TryLast) -> Flow {
    match last {
        TryLast::Status(code) => Flow::Status(*code),
        TryLast::Named(name) => named_location(r, name),
        TryLast::Uri(template) => {
            let target = r.eval(template);
            match target.iter().position(|b| *b == b'?') {
                Some(at) => {
                    let (uri, args) = (target[..at].to_vec(), target[at + 1..].to_vec());
                    internal_redirect(r, &uri, &args)
                }
                // Arguments go on only where the last parameter names them.
                None => internal_redirect(r, &target, b""),
            }
        }
    }
}
