//! What keys have made of the screen: which view, where in it, how it is sorted.

use crate::specs::{self, VIEWS};

/// The first, and those behind [`VIEWS`].
pub const OVERVIEW: usize = 0;
pub const PROBLEMS: usize = VIEWS.len() + 1;
pub const VISITORS: usize = PROBLEMS + 1;
pub const VIEW_COUNT: usize = VISITORS + 1;
/// The key of each.
pub const KEYS: [char; VIEW_COUNT] = ['1', '2', '3', '4', '5', '6', '7', '8', '9', '0', 'v'];
/// What is looked for is no longer.
const FILTER_MAX_CHARS: usize = 60;

pub fn name(view: usize) -> &'static str {
    match view {
        OVERVIEW => "overview",
        PROBLEMS => "problems",
        VISITORS => "visitors",
        n => VIEWS.get(n - 1).map_or("", |(name, _)| name),
    }
}

/// The tables of a view.
pub fn tables(view: usize) -> &'static [usize] {
    view.checked_sub(1).and_then(|n| VIEWS.get(n)).map_or(&[], |(_, tables)| tables)
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Key {
    Char(char),
    Enter,
    Escape,
    Backspace,
    Next,
    Previous,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    /// Ctrl-C and its like.
    Interrupt,
    /// Ctrl-Z
    Suspend,
    /// Ctrl-L
    Redraw,
}

/// What is left to who has the terminal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Asked {
    Nothing,
    Quit,
    Suspend,
    Redraw,
}

#[derive(Default)]
pub struct Ui {
    pub view: usize,
    /// Lines of the view above the screen.
    pub offset: usize,
    /// The column that a view is sorted by, and whether the other way round.
    pub sorts: [Option<(usize, bool)>; VIEW_COUNT],
    pub filter: String,
    pub is_typing: bool,
    pub is_paused: bool,
    pub has_help: bool,
    /// A row for each server.
    pub is_split: bool,
    /// How many lines the screen has for the view, and how many the view has: as it was drawn last.
    pub page: usize,
    pub lines: usize,
}

impl Ui {
    pub fn sort(&self) -> Option<(usize, bool)> {
        self.sorts[self.view]
    }

    /// The title of the column it is sorted by.
    pub fn sorted_by(&self) -> Option<&'static str> {
        let (column, _) = self.sort()?;
        let table = specs::tables().nth(*tables(self.view).first()?)?;
        table.columns.get(column).map(|c| c.title)
    }

    pub fn key(&mut self, key: Key) -> Asked {
        match key {
            Key::Interrupt => return Asked::Quit,
            Key::Suspend => return Asked::Suspend,
            Key::Redraw => return Asked::Redraw,
            _ if self.is_typing => self.type_in(key),
            Key::Char('q') => return Asked::Quit,
            Key::Char('?' | 'h') => self.has_help = !self.has_help,
            Key::Escape => self.escape(),
            Key::Char('/') => self.is_typing = true,
            Key::Char('p' | ' ') => self.is_paused = !self.is_paused,
            Key::Char('s') => self.sort_on(),
            Key::Char('r') => {
                if let Some((_, is_reversed)) = &mut self.sorts[self.view] {
                    *is_reversed = !*is_reversed;
                }
            }
            Key::Char('e') => self.is_split = !self.is_split,
            Key::Char(c) => {
                if let Some(view) = KEYS.iter().position(|k| *k == c) {
                    self.show(view);
                }
            }
            Key::Next => self.show((self.view + 1) % VIEW_COUNT),
            Key::Previous => self.show((self.view + VIEW_COUNT - 1) % VIEW_COUNT),
            Key::Up => self.offset = self.offset.saturating_sub(1),
            Key::Down => self.offset += 1,
            Key::PageUp => self.offset = self.offset.saturating_sub(self.page),
            Key::PageDown => self.offset += self.page,
            Key::Home => self.offset = 0,
            Key::End => self.offset = usize::MAX,
            Key::Enter | Key::Backspace => {}
        }
        self.offset = self.offset.min(self.lines.saturating_sub(self.page));
        Asked::Nothing
    }

    fn show(&mut self, view: usize) {
        (self.view, self.offset, self.has_help) = (view, 0, false);
        // How long it is shows when it is drawn.
        self.lines = 0;
    }

    fn escape(&mut self) {
        match self.has_help {
            true => self.has_help = false,
            false => self.filter.clear(),
        }
    }

    fn type_in(&mut self, key: Key) {
        match key {
            Key::Enter => self.is_typing = false,
            Key::Escape => {
                self.is_typing = false;
                self.filter.clear();
            }
            Key::Backspace => drop(self.filter.pop()),
            Key::Char(c) if self.filter.chars().count() < FILTER_MAX_CHARS => self.filter.push(c),
            _ => {}
        }
        self.offset = 0;
    }

    /// By the next column, and behind the last in the order in which they were told.
    fn sort_on(&mut self) {
        let first = tables(self.view).first().and_then(|n| specs::tables().nth(*n));
        let columns = first.map_or(0, |table| table.columns.len());
        let next = self.sorts[self.view].map_or(0, |(column, _)| column + 1);
        self.sorts[self.view] = (next < columns).then_some((next, false));
    }

    /// Whether something of that name is to be seen.
    pub fn wants(&self, text: &str) -> bool {
        self.filter.is_empty() || text.to_lowercase().contains(&self.filter.to_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_lead_through_views() {
        let mut ui = Ui::default();
        for (view, key) in KEYS.into_iter().enumerate() {
            assert_eq!(ui.key(Key::Char(key)), Asked::Nothing);
            assert_eq!(ui.view, view);
            assert!(!name(view).is_empty());
        }
        ui.key(Key::Next);
        assert_eq!(name(ui.view), "overview");
        ui.key(Key::Previous);
        assert_eq!(name(ui.view), "visitors");
        assert_eq!(ui.key(Key::Char('q')), Asked::Quit);
        assert_eq!(ui.key(Key::Suspend), Asked::Suspend);
    }

    #[test]
    fn what_is_typed_is_no_command() {
        let mut ui = Ui::default();
        "/qX".chars().for_each(|c| {
            ui.key(Key::Char(c));
        });
        assert!(ui.is_typing && ui.wants("aQx") && !ui.wants("b"));
        assert_eq!(ui.key(Key::Interrupt), Asked::Quit);
        (0..100).for_each(|_| {
            ui.key(Key::Char('a'));
        });
        assert_eq!(ui.filter.chars().count(), FILTER_MAX_CHARS);
        ui.key(Key::Enter);
        assert!(!ui.is_typing && !ui.filter.is_empty());
        ui.key(Key::Escape);
        assert!(ui.filter.is_empty());
    }

    #[test]
    fn columns_are_sorted_by_in_turn() {
        let mut ui = Ui { view: 1, ..Ui::default() };
        assert_eq!(ui.sorted_by(), None);
        ui.key(Key::Char('s'));
        ui.key(Key::Char('r'));
        assert_eq!((ui.sorted_by(), ui.sort()), (Some("req/s"), Some((0, true))));
        (0..20).for_each(|_| {
            ui.key(Key::Char('s'));
        });
        ui.view = 0;
        ui.key(Key::Char('s'));
        assert_eq!(ui.sort(), None);
    }

    #[test]
    fn scrolling_ends_with_the_view() {
        let mut ui = Ui { lines: 30, page: 10, ..Ui::default() };
        ui.key(Key::End);
        assert_eq!(ui.offset, 20);
        ui.key(Key::PageDown);
        assert_eq!(ui.offset, 20);
        ui.key(Key::PageUp);
        ui.key(Key::Up);
        assert_eq!(ui.offset, 9);
    }
}
