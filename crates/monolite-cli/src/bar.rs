//! Progress on standard error: one line on a terminal, a line every few seconds elsewhere.

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Time between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Shows what a run is doing, and how long it goes on.
pub(crate) struct Bar {
    bar: ProgressBar,
    terminal: bool,
    state: Mutex<BarState>,
}

#[derive(Default)]
struct BarState {
    what: String,
    /// How far it is, of how much.
    step: Option<(u64, u64)>,
    /// When the run ends, about.
    end: Option<Instant>,
    printed: Option<Instant>,
}

impl BarState {
    /// What is shown: what is done, how far it is, and the time left.
    fn text(&self, now: Instant) -> String {
        let mut text = self.what.clone();
        if let Some((done, total)) = self.step.filter(|(done, _)| *done > 0) {
            text.push_str(&format!(", {} %", done * 100 / total.max(1)));
        }
        if let Some(end) = self.end {
            let left = HumanDuration(end.saturating_duration_since(now));
            text.push_str(&format!("; about {left} left"));
        }
        text
    }
}

impl Bar {
    pub(crate) fn new() -> Bar {
        let terminal = std::io::stderr().is_terminal();
        let target =
            if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_style(ProgressStyle::with_template("{spinner} {wide_msg}").expect("it is valid"));
        Bar { bar, terminal, state: Mutex::default() }
    }

    /// One that prints no line in its first seconds, where there is no terminal.
    pub(crate) fn patient() -> Bar {
        let bar = Bar::new();
        bar.state().printed = Some(Instant::now());
        bar
    }

    fn state(&self) -> MutexGuard<'_, BarState> {
        self.state.lock().expect("no thread panics while holding it")
    }

    fn show(&self, state: &mut BarState) {
        let now = Instant::now();
        if self.terminal {
            self.bar.set_message(state.text(now));
        } else if state.printed.is_none_or(|printed| now - printed >= LINE_EVERY) {
            let _ = writeln!(std::io::stderr(), "{}", state.text(now));
            state.printed = Some(now);
        }
    }

    pub(crate) fn begin(&self, what: &str, total: Option<u64>) {
        let mut state = self.state();
        what.clone_into(&mut state.what);
        state.step = total.map(|total| (0, total));
        self.bar.enable_steady_tick(Duration::from_millis(200));
        self.show(&mut state);
    }

    pub(crate) fn advance_to(&self, done: u64) {
        let mut state = self.state();
        state.step = state.step.map(|(_, total)| (done, total));
        self.show(&mut state);
    }

    pub(crate) fn finish(&self) {
        self.bar.disable_steady_tick();
        self.bar.finish_and_clear();
        self.bar.reset();
    }

    pub(crate) fn time_left(&self, left: Duration) {
        self.state().end = Some(Instant::now() + left);
    }

    pub(crate) fn note(&self, text: &str) {
        self.bar.suspend(|| {
            let _ = writeln!(std::io::stderr(), "{text}");
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_it_is_and_how_long_it_takes() {
        let now = Instant::now();
        let mut state = BarState { what: "loading".into(), ..BarState::default() };
        assert_eq!(state.text(now), "loading");
        state.step = Some((1, 4));
        state.end = Some(now + Duration::from_secs(70));
        assert_eq!(state.text(now), "loading, 25 %; about 70 seconds left");
    }
}
