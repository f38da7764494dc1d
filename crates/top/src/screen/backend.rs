//! A buffer's cells drawn by crossterm. (`ratatui-crossterm` does it too, and brings a dozen crates that only its own
//! build needs.)

use crossterm::style::{Attribute, Color as Colour, Print, SetAttribute, SetForegroundColor};
use crossterm::terminal::{self, Clear};
use crossterm::{cursor, queue};
use ratatui_core::backend::{Backend, ClearType, WindowSize};
use ratatui_core::buffer::Cell;
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::{Color, Modifier};
use std::io::{self, Write};

/// A terminal may claim any size; a cell takes memory, and time to draw.
const MOST: (u16, u16) = (500, 200);

pub struct Drawn<W: Write>(pub W);

/// Columns and rows that are used.
pub fn size() -> io::Result<(u16, u16)> {
    terminal::size().map(|(width, height)| (width.min(MOST.0), height.min(MOST.1)))
}

/// What cells are drawn with.
type Style = (Color, Modifier);

/// Those that are used; all others are the terminal's own.
fn colour(colour: Color) -> Colour {
    match colour {
        Color::Red => Colour::DarkRed,
        Color::Green => Colour::DarkGreen,
        Color::Yellow => Colour::DarkYellow,
        Color::Cyan => Colour::DarkCyan,
        Color::DarkGray => Colour::DarkGrey,
        _ => Colour::Reset,
    }
}

impl<W: Write> Drawn<W> {
    fn style(&mut self, (fg, modifier): Style) -> io::Result<()> {
        queue!(self.0, SetAttribute(Attribute::Reset))?;
        if modifier.contains(Modifier::BOLD) {
            queue!(self.0, SetAttribute(Attribute::Bold))?;
        }
        if modifier.contains(Modifier::REVERSED) {
            queue!(self.0, SetAttribute(Attribute::Reverse))?;
        }
        match fg {
            Color::Reset => Ok(()),
            fg => queue!(self.0, SetForegroundColor(colour(fg))),
        }
    }
}

impl<W: Write> Backend for Drawn<W> {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let mut style = (Color::Reset, Modifier::empty());
        let mut next = None;
        for (x, y, cell) in content {
            if next != Some((x, y)) {
                queue!(self.0, cursor::MoveTo(x, y))?;
            }
            next = Some((x + 1, y));
            if style != (cell.fg, cell.modifier) {
                style = (cell.fg, cell.modifier);
                self.style(style)?;
            }
            queue!(self.0, Print(cell.symbol()))?;
        }
        queue!(self.0, SetAttribute(Attribute::Reset))
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        queue!(self.0, cursor::Hide)
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        queue!(self.0, cursor::Show)
    }

    /// Nobody needs it on a whole screen, and the terminal's answer would come among the keys.
    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        let Position { x, y } = position.into();
        queue!(self.0, cursor::MoveTo(x, y))
    }

    fn clear(&mut self) -> io::Result<()> {
        self.clear_region(ClearType::All)
    }

    fn clear_region(&mut self, what: ClearType) -> io::Result<()> {
        let what = match what {
            ClearType::All => terminal::ClearType::All,
            ClearType::AfterCursor => terminal::ClearType::FromCursorDown,
            ClearType::BeforeCursor => terminal::ClearType::FromCursorUp,
            ClearType::CurrentLine => terminal::ClearType::CurrentLine,
            ClearType::UntilNewLine => terminal::ClearType::UntilNewLine,
        };
        queue!(self.0, Clear(what))
    }

    fn size(&self) -> io::Result<Size> {
        size().map(|(width, height)| Size { width, height })
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize { columns_rows: self.size()?, pixels: Size::ZERO })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui_core::buffer::Buffer;
    use ratatui_core::layout::Rect;
    use ratatui_core::style::Style;

    #[test]
    fn cells_are_drawn_side_by_side_and_styles_end() {
        let empty = Buffer::empty(Rect::new(0, 0, 10, 2));
        let mut buffer = empty.clone();
        buffer.set_string(2, 1, "ab", Style::new().fg(Color::Red).add_modifier(Modifier::BOLD));
        buffer.set_string(4, 1, "c", Style::new());
        let mut out = Drawn(Vec::new());
        out.draw(empty.diff(&buffer).into_iter()).unwrap();
        let text = String::from_utf8(out.0).unwrap();
        assert!(text.starts_with("\x1b[2;3H\x1b[0m\x1b[1m"), "{text:?}");
        assert!(text.contains("ab\x1b[0mc") && text.ends_with("\x1b[0m"), "{text:?}");
    }
}
