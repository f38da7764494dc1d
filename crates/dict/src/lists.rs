//! Entries that are lists. Nothing is given up for an element: a list that does not fit is refused.

use crate::state::{Found, State, Timing, ENTRY_BYTES};
use crate::table::{Item, Key, List, Listed};
use crate::value::{NotList, PushError, Value, ValueRef};

/// What OpenResty's element takes beside its value.
const ELEMENT_BYTES: usize = 21;
/// The list's two links, behind the key.
const LINKS_BYTES: usize = 16;

/// What a list's entry takes without its elements.
pub fn list_bytes(key: &[u8]) -> usize {
    (ENTRY_BYTES + key.len() + LINKS_BYTES).next_multiple_of(8)
}

pub fn element_bytes(value: ValueRef<'_>) -> usize {
    ELEMENT_BYTES + value.bytes()
}

impl Item {
    /// Lists have no booleans.
    pub fn of(value: ValueRef<'_>) -> Option<Item> {
        match value {
            ValueRef::Boolean(_) => None,
            ValueRef::Number(n) => Some(Item::Number(n)),
            ValueRef::Text(text) => Some(Item::Text(text.into())),
        }
    }
}

impl From<Item> for Value {
    fn from(item: Item) -> Value {
        match item {
            Item::Number(n) => Value::Number(n),
            Item::Text(text) => Value::Text(text.into_vec()),
        }
    }
}

impl State {
    /// The new length.
    pub fn push(
        &mut self,
        key: Key<'_>,
        value: ValueRef<'_>,
        left: bool,
        now_ms: u64,
    ) -> Result<usize, PushError> {
        let item = Item::of(value).ok_or(PushError::BadValue)?;
        self.tidy(now_ms);
        let n = self.list_to_push(key, now_ms)?;
        let page = self.slab.alloc(element_bytes(value));
        let list = self.table[n].list_mut().ok_or(PushError::NotList)?;
        let Some(page) = page else {
            if list.is_empty() {
                self.remove(n);
            }
            return Err(PushError::NoMemory);
        };
        if left {
            list.push_front(Listed { item, page });
        } else {
            list.push_back(Listed { item, page });
        }
        Ok(list.len())
    }

    /// The list of that key, or an empty new one, which never expires.
    fn list_to_push(&mut self, key: Key<'_>, now_ms: u64) -> Result<u32, PushError> {
        let timing = Timing { now_ms, for_ms: 0 };
        match self.lookup(key, now_ms) {
            Found::Live(n) if self.table[n].list().is_none() => return Err(PushError::NotList),
            Found::Live(n) => return Ok(n),
            Found::Expired(n) => self.remove(n),
            Found::Nothing => {}
        }
        let page = self.slab.alloc(list_bytes(key.bytes)).ok_or(PushError::NoMemory)?;
        Ok(self.insert_list(key, List::new(), page, timing))
    }

    pub fn pop(&mut self, key: Key<'_>, left: bool, now_ms: u64) -> Result<Option<Value>, NotList> {
        self.tidy(now_ms);
        let Found::Live(n) = self.lookup(key, now_ms) else { return Ok(None) };
        let list = self.table[n].list_mut().ok_or(NotList)?;
        let popped = if left { list.pop_front() } else { list.pop_back() };
        if list.is_empty() {
            self.remove(n);
        }
        Ok(popped.map(|listed| {
            self.slab.free(listed.page);
            listed.item.into()
        }))
    }

    pub fn llen(&mut self, key: Key<'_>, now_ms: u64) -> Result<usize, NotList> {
        self.tidy(now_ms);
        let Found::Live(n) = self.lookup(key, now_ms) else { return Ok(0) };
        Ok(self.table[n].list().ok_or(NotList)?.len())
    }
}
