//! A configuration value that may be unset at a level and is filled from the outer one.

use crate::{ArgsExt, ConfResult, Directive};
use std::ops::Deref;

/// Unset until a directive sets it or [`Val::merge`] fills it. Reading an unmerged value is a
/// programming error: every slot's `merge` fills all of its values.
#[derive(Clone, Debug)]
pub struct Val<T>(Option<T>);

impl<T> Default for Val<T> {
    fn default() -> Self {
        Val(None)
    }
}

impl<T> Val<T> {
    pub const UNSET: Val<T> = Val(None);

    pub fn is_set(&self) -> bool {
        self.0.is_some()
    }

    pub fn set(&mut self, value: T) {
        self.0 = Some(value);
    }

    pub fn as_option(&self) -> Option<&T> {
        self.0.as_ref()
    }

    pub fn as_mut(&mut self) -> Option<&mut T> {
        self.0.as_mut()
    }

    /// Sets the value; a second time at the same level is nginx's `is duplicate`.
    pub fn once(&mut self, d: &Directive, value: T) -> ConfResult {
        if self.0.is_some() {
            return Err(d.error("is duplicate"));
        }
        self.0 = Some(value);
        Ok(())
    }
}

impl<T: Clone> Val<T> {
    /// Takes the outer level's value, or the default, when this level set none.
    pub fn merge(&mut self, parent: &Val<T>, default: impl FnOnce() -> T) {
        if self.0.is_none() {
            self.0 = Some(match &parent.0 {
                Some(v) => v.clone(),
                None => default(),
            });
        }
    }
}

impl<T> Deref for Val<T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_ref().expect("configuration values are merged before they are read")
    }
}

/// A setter for a row: reads a value of the directive and keeps it in a field of a slot; a second time at
/// the same level is nginx's `is duplicate`.
///
/// `set!(slot, field, read)`: `slot` is a function from [`Cf`](crate::Cf) to the slot, `read` one from the
/// directive to the value, such as those of [`first`](crate::first).
#[macro_export]
macro_rules! set {
    ($slot:expr, $field:ident, $read:expr) => {
        |cf, d| {
            let read: fn(&$crate::Directive) -> $crate::ConfResult<_> = $read;
            let value = read(d)?;
            $slot(cf).$field.once(d, value)
        }
    };
}

/// Merges several [`Val`]s of a slot: `merge_values!(self, parent; sendfile = false, root = …)`.
#[macro_export]
macro_rules! merge_values {
    ($self:ident, $parent:ident; $($field:ident = $default:expr),* $(,)?) => {
        $( $self.$field.merge(&$parent.$field, || $default); )*
    };
}
