//! What goes into a dictionary, and why it may not.

use std::fmt;

/// Keys are no longer than that; those that are longer are never found.
pub const MAX_KEY_BYTES: usize = 65535;

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Boolean(bool),
    Number(f64),
    Text(Vec<u8>),
}

/// A value that is somewhere else.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueRef<'a> {
    Boolean(bool),
    Number(f64),
    Text(&'a [u8]),
}

impl ValueRef<'_> {
    /// What the value takes in OpenResty's entries.
    pub(crate) fn bytes(self) -> usize {
        match self {
            ValueRef::Boolean(_) => 1,
            ValueRef::Number(_) => 8,
            ValueRef::Text(text) => text.len(),
        }
    }
}

impl From<ValueRef<'_>> for Value {
    fn from(value: ValueRef<'_>) -> Value {
        match value {
            ValueRef::Boolean(b) => Value::Boolean(b),
            ValueRef::Number(n) => Value::Number(n),
            ValueRef::Text(text) => Value::Text(text.to_vec()),
        }
    }
}

impl<'a> From<&'a Value> for ValueRef<'a> {
    fn from(value: &'a Value) -> ValueRef<'a> {
        match value {
            Value::Boolean(b) => ValueRef::Boolean(*b),
            Value::Number(n) => ValueRef::Number(*n),
            Value::Text(text) => ValueRef::Text(text),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Set,
    /// `Set` that gives up no entry for the new one.
    SafeSet,
    /// Only if there is none, or an expired one.
    Add,
    SafeAdd,
    /// Only if there is one that has not expired.
    Replace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Others were given up for it.
    pub forcible: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    Exists,
    NotFound,
    /// What was under the key is gone, and if `forcible` so are others.
    NoMemory {
        forcible: bool,
    },
    KeyTooLong,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncrError {
    NotFound,
    NotNumber,
    NoMemory,
    KeyTooLong,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushError {
    NotList,
    NoMemory,
    /// Lists have numbers and texts.
    BadValue,
    KeyTooLong,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IsList;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotList;

/// The words are OpenResty's.
macro_rules! says {
    ($name:ident: $($pattern:pat => $text:literal),+) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($pattern => $text),+ })
            }
        }
        impl std::error::Error for $name {}
    };
}

says!(Refused: Refused::Exists => "exists", Refused::NotFound => "not found",
      Refused::NoMemory { .. } => "no memory", Refused::KeyTooLong => "key too long");
says!(IncrError: IncrError::NotFound => "not found", IncrError::NotNumber => "not a number",
      IncrError::NoMemory => "no memory", IncrError::KeyTooLong => "key too long");
says!(PushError: PushError::NotList => "value not a list", PushError::NoMemory => "no memory",
      PushError::BadValue => "bad value type", PushError::KeyTooLong => "key too long");
says!(IsList: IsList => "value is a list");
says!(NotList: NotList => "value not a list");
