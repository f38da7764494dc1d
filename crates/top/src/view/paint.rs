//! Colours, where there are any.

use crate::cell::Tone;
use ratatui_core::style::{Color, Modifier, Style};

#[derive(Default)]
pub struct Paint {
    pub is_coloured: bool,
}

impl Paint {
    fn colour(&self, colour: Color) -> Style {
        if self.is_coloured {
            Style::new().fg(colour)
        } else {
            Style::new()
        }
    }

    pub fn strong(&self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub fn dim(&self) -> Style {
        self.colour(Color::DarkGray)
    }

    pub fn chosen(&self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub fn bad(&self) -> Style {
        self.colour(Color::Red).add_modifier(Modifier::BOLD)
    }

    pub fn plotted(&self) -> Style {
        self.colour(Color::Cyan)
    }

    pub fn tone(&self, tone: Tone) -> Style {
        match tone {
            Tone::Plain => Style::new(),
            Tone::Good => self.colour(Color::Green),
            Tone::Odd => self.colour(Color::Yellow),
            Tone::Bad => self.bad(),
        }
    }
}
