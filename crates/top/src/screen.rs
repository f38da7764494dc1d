//! The terminal: taken, drawn on, given back whatever happens; keys, signals and answers as they come.

mod backend;

use crate::history::History;
use crate::picture::Picture;
use crate::sources::{Ask, Sources, Told};
use crate::ui::{Asked, Key, Ui, VISITORS};
use crate::view::{self, Paint, Shown};
use crate::Options;
use backend::Drawn;
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::{cursor, execute, terminal};
use ratatui_core::terminal::Terminal;
use std::io::{self, BufWriter, IsTerminal, Stdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};
use weir_runtime::process;
use weir_runtime::signals::{self, Signal, Waiter, Wake};

/// Who does not answer for so long, and for so many looks, is told.
const LATE: Duration = Duration::from_secs(3);
const LATE_LOOKS: u32 = 3;
/// The screen is drawn so often at least, so that who is late shows.
const DRAW: Duration = Duration::from_secs(1);
/// Visitors are asked for no more often: they cost the server more than all else.
const VISITORS_EVERY: Duration = Duration::from_secs(3);
const SIGNALS: [Signal; 6] =
    [Signal::Term, Signal::Int, Signal::Hup, Signal::Quit, Signal::Tstp, Signal::Cont];

/// Whether the terminal is ours.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal while it is ours; it is given back with this.
struct Guarded(());

impl Guarded {
    /// Takes the terminal. A panic of any thread gives it back before it says anything.
    ///
    /// # Errors
    ///
    /// The system's.
    fn take() -> io::Result<Guarded> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                give_back();
                before(info);
            }));
        });
        let guarded = Guarded(());
        take()?;
        Ok(guarded)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        give_back();
    }
}

fn take() -> io::Result<()> {
    IS_TAKEN.store(true, Ordering::SeqCst);
    terminal::enable_raw_mode()?;
    execute!(io::stdout(), terminal::EnterAlternateScreen, cursor::Hide)
}

fn give_back() {
    if IS_TAKEN.swap(false, Ordering::SeqCst) {
        // It may be gone.
        let _ = execute!(io::stdout(), cursor::Show, terminal::LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}

/// How wide the screen is, if there is one.
pub fn width() -> Option<u16> {
    backend::size().ok().map(|(width, _)| width)
}

enum Happened {
    Told(usize, Told),
    Key(Key),
    Resized,
    Signal(Signal),
    /// There are no keys any more.
    Gone,
}

/// What threads that ask are told.
#[derive(Default)]
struct Wanted {
    visitors: AtomicBool,
}

/// Shows servers until `q`.
///
/// # Errors
///
/// There is no terminal, or it is gone.
pub fn watch(askers: Vec<Box<dyn Ask>>, options: &Options) -> Result<(), String> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err("there is no terminal: write \"top --once\", or \"top --json\"".into());
    }
    let failed = |e: io::Error| format!("the terminal: {e}");
    // Before there are threads: they are to have the signals blocked.
    let waiter = Waiter::of(&SIGNALS).map_err(failed)?;
    let sources = Sources::new(askers.iter().map(|asker| asker.name()));
    let (sender, happens) = mpsc::channel();
    let wanted = Arc::<Wanted>::default();
    let _guarded = Guarded::take().map_err(failed)?;
    let start = || -> io::Result<()> {
        for (n, asker) in askers.into_iter().enumerate() {
            let (to, wanted, interval) = (sender.clone(), Arc::clone(&wanted), options.interval);
            let run = move || ask(n, asker, interval, &wanted, &to);
            std::thread::Builder::new().name("asks".into()).spawn(run)?;
        }
        let to = sender.clone();
        std::thread::Builder::new().name("keys".into()).spawn(move || keys(&to))?;
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || listen(&waiter, &sender))?;
        Ok(())
    };
    start().map_err(failed)?;
    let terminal = Terminal::new(Drawn(BufWriter::new(io::stdout())));
    let mut screen = Screen {
        terminal: terminal.map_err(failed)?,
        sources,
        picture: Picture::default(),
        history: History::default(),
        ui: Ui::default(),
        paint: Paint { is_coloured: options.is_coloured },
        interval: options.interval,
        wanted,
    };
    screen.run(&happens).map_err(failed)
}

/// Asks a server again and again.
fn ask(
    n: usize,
    mut asker: Box<dyn Ask>,
    interval: Duration,
    wanted: &Wanted,
    to: &Sender<Happened>,
) {
    let mut asked: Option<Instant> = None;
    loop {
        let began = Instant::now();
        let is_due = asked.is_none_or(|at| at.elapsed() >= VISITORS_EVERY);
        let with_visitors = is_due && wanted.visitors.load(Ordering::Relaxed);
        if with_visitors {
            asked = Some(began);
        }
        if to.send(Happened::Told(n, Told::by(&mut *asker, with_visitors))).is_err() {
            return;
        }
        std::thread::sleep(interval.saturating_sub(began.elapsed()));
    }
}

fn listen(waiter: &Waiter, to: &Sender<Happened>) {
    loop {
        if let Wake::Signal(signal) = waiter.wait(None, None) {
            if to.send(Happened::Signal(signal)).is_err() {
                return;
            }
        }
    }
}

fn keys(to: &Sender<Happened>) {
    loop {
        let happened = match event::read() {
            Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                key_of(&key).map(Happened::Key)
            }
            Ok(Event::Resize(..)) => Some(Happened::Resized),
            Ok(_) => None,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => None,
            Err(_) => Some(Happened::Gone),
        };
        let is_end = matches!(happened, Some(Happened::Gone));
        if happened.is_some_and(|h| to.send(h).is_err()) || is_end {
            return;
        }
    }
}

fn key_of(key: &KeyEvent) -> Option<Key> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c' | 'd' | '\\') => Some(Key::Interrupt),
            KeyCode::Char('z') => Some(Key::Suspend),
            KeyCode::Char('l') => Some(Key::Redraw),
            _ => None,
        };
    }
    Some(match key.code {
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Tab | KeyCode::Right => Key::Next,
        KeyCode::BackTab | KeyCode::Left => Key::Previous,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        _ => return None,
    })
}

struct Screen {
    terminal: Terminal<Drawn<BufWriter<Stdout>>>,
    sources: Sources,
    picture: Picture,
    history: History,
    ui: Ui,
    paint: Paint,
    interval: Duration,
    wanted: Arc<Wanted>,
}

impl Screen {
    fn run(&mut self, happens: &Receiver<Happened>) -> io::Result<()> {
        loop {
            self.draw()?;
            let first = match happens.recv_timeout(DRAW) {
                Ok(happened) => Some(happened),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            // What has come together is drawn once.
            let mut is_told = false;
            for happened in first.into_iter().chain(happens.try_iter()) {
                is_told |= matches!(happened, Happened::Told(..));
                if !self.goes_on(happened)? {
                    return Ok(());
                }
            }
            if is_told {
                self.look();
            }
        }
    }

    /// `false` ends it.
    fn goes_on(&mut self, happened: Happened) -> io::Result<bool> {
        match happened {
            Happened::Told(n, told) => self.sources.take(n, told),
            Happened::Resized => {}
            Happened::Gone => return Ok(false),
            Happened::Key(key) => {
                let was_split = self.ui.is_split;
                match self.ui.key(key) {
                    Asked::Nothing => {}
                    Asked::Quit => return Ok(false),
                    Asked::Suspend => self.suspend()?,
                    Asked::Redraw => self.redraw()?,
                }
                if was_split != self.ui.is_split {
                    self.picture = self.sources.picture(self.ui.is_split);
                }
                let wants = self.ui.view == VISITORS;
                self.wanted.visitors.store(wants, Ordering::Relaxed);
            }
            Happened::Signal(Signal::Tstp) => self.suspend()?,
            Happened::Signal(Signal::Cont) => self.resume()?,
            Happened::Signal(_) => return Ok(false),
        }
        Ok(true)
    }

    /// The terminal is the shell's until this process is told to go on.
    fn suspend(&mut self) -> io::Result<()> {
        give_back();
        signals::send(process::pid() as i32, Signal::Stop)?;
        self.resume()
    }

    fn resume(&mut self) -> io::Result<()> {
        take()?;
        self.redraw()
    }

    /// All of it anew.
    fn redraw(&mut self) -> io::Result<()> {
        self.terminal.clear()
    }

    /// A new picture of all that has been told.
    fn look(&mut self) {
        let picture = self.sources.picture(self.ui.is_split);
        // Of several servers one look of each is a moment.
        self.history.add(&picture);
        if !self.ui.is_paused {
            self.picture = picture;
        }
    }

    /// What is to be said besides.
    fn word(&self) -> Option<String> {
        if self.ui.is_paused {
            return Some("paused".into());
        }
        let now = Instant::now();
        let late = (0..self.sources.list.len()).map(|n| self.sources.late(n, now)).max()?;
        (late > LATE.max(self.interval * LATE_LOOKS))
            .then(|| format!("no answer for {} s", late.as_secs()))
    }

    fn draw(&mut self) -> io::Result<()> {
        let word = self.word();
        let mut drawn = (0, 0);
        let shown = Shown {
            picture: &self.picture,
            history: &self.history,
            ui: &self.ui,
            paint: &self.paint,
        };
        self.terminal.draw(|frame| {
            drawn = view::draw(frame.buffer_mut(), &shown, word.as_deref());
        })?;
        (self.ui.page, self.ui.lines) = drawn;
        self.ui.offset = self.ui.offset.min(drawn.1.saturating_sub(drawn.0));
        Ok(())
    }
}
