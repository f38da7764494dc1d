//! What the documents of one page have in common.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use weir_script::regex::Captures;

/// Of all blocks of a page together.
const BLOCKS_MAX_BYTES: usize = 16 << 20;
/// Of a page.
const VARIABLES_MAX: usize = 10_000;
/// Of their values together.
const VALUES_MAX_BYTES: usize = 16 << 20;
/// Of a page.
const BLOCKS_MAX: usize = 1000;

pub type PageRef = Rc<RefCell<Page>>;

#[derive(Default)]
pub struct Page {
    /// Names in lower case.
    variables: Vec<(Vec<u8>, Vec<u8>)>,
    /// Names of variables whose value could not be told.
    unsure: Vec<Vec<u8>>,
    value_bytes: usize,
    blocks: Vec<(Vec<u8>, Bytes)>,
    /// The block whose text is being read.
    open: Option<(Vec<u8>, Vec<u8>)>,
    block_bytes: usize,
    /// What the last expression that matched has captured.
    captures: Vec<Vec<u8>>,
}

impl Page {
    /// A variable of the page, or a capture by its digit.
    pub fn variable(&self, name: &[u8]) -> Option<&[u8]> {
        if let [digit @ b'0'..=b'9'] = name {
            if let Some(text) = self.captures.get(usize::from(digit - b'0')) {
                return Some(text);
            }
        }
        self.variables.iter().find(|v| v.0 == name).map(|v| &*v.1)
    }

    /// Sets a variable; `false` when the page has too many or too much in them.
    pub fn set(&mut self, name: &[u8], value: Vec<u8>) -> bool {
        let at = self.variables.iter().position(|v| v.0 == name);
        let before = at.map_or(0, |at| self.variables[at].1.len());
        let bytes = self.value_bytes - before + value.len();
        if bytes > VALUES_MAX_BYTES || (at.is_none() && self.variables.len() >= VARIABLES_MAX) {
            return false;
        }
        self.value_bytes = bytes;
        self.unsure.retain(|v| v != name);
        match at {
            Some(at) => self.variables[at].1 = value,
            None => self.variables.push((name.to_vec(), value)),
        }
        true
    }

    /// A variable's value could not be told: it has none, and whoever asks for it learns that.
    pub fn set_unsure(&mut self, name: &[u8]) {
        if let Some(at) = self.variables.iter().position(|v| v.0 == name) {
            self.value_bytes -= self.variables.swap_remove(at).1.len();
        }
        if !self.is_unsure(name) && self.unsure.len() < VARIABLES_MAX {
            self.unsure.push(name.to_vec());
        }
    }

    pub fn is_unsure(&self, name: &[u8]) -> bool {
        self.unsure.iter().any(|v| v == name)
    }

    pub fn capture(&mut self, subject: &[u8], captures: &Captures) {
        let last = (0..captures.len()).rev().find(|n| captures.range(*n).is_some());
        let groups = 0..last.map_or(0, |n| n + 1);
        self.captures = groups.map(|n| captures.text(subject, n).to_vec()).collect();
    }

    pub fn begin_block(&mut self, name: &[u8]) {
        self.end_block();
        self.open = Some((name.to_vec(), Vec::new()));
    }

    /// Text for the block that was begun last.
    pub fn add_to_block(&mut self, text: &[u8]) {
        let Some((_, block)) = &mut self.open else { return };
        if self.block_bytes + text.len() <= BLOCKS_MAX_BYTES {
            self.block_bytes += text.len();
            block.extend_from_slice(text);
        }
    }

    pub fn end_block(&mut self) {
        let Some((name, text)) = self.open.take() else { return };
        if self.blocks.len() < BLOCKS_MAX {
            self.blocks.push((name, text.into()));
        }
    }

    pub fn block(&self, name: &[u8]) -> Option<Bytes> {
        self.blocks.iter().find(|b| b.0 == name).map(|b| b.1.clone())
    }
}
