//! Modes, as the scripts take and store them: `x`, `s`, `u`, `pTAKE/OF`, and `x<ID` for an upgrade.

use std::borrow::Cow;

use lock_core::backend::{AcquireRequest, Mode, Permits};
use lock_core::{Error, ErrorKind, Result};

/// The scripts' word for a hold in which nobody else has the name.
pub(crate) const EXCLUSIVE: &str = "x";

/// The scripts' word for a hold of a reader.
pub(crate) const SHARED: &str = "s";

/// The scripts' text for the mode of this request.
pub(crate) fn of(request: &AcquireRequest) -> Result<Cow<'static, str>> {
    if let Some(base) = request.replaces() {
        return Ok(format!("{EXCLUSIVE}<{base}").into());
    }
    Ok(match request.mode() {
        Mode::Exclusive => EXCLUSIVE.into(),
        Mode::Shared => SHARED.into(),
        Mode::Upgradable => "u".into(),
        Mode::Permits(permits) => format!("p{}/{}", permits.take(), permits.of()).into(),
        other => {
            let what = format!("lock-redis does not know the mode {other:?}");
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
    })
}

/// The mode of a holder; `None`: no mode of ours.
pub(crate) fn parse(text: &str) -> Option<Mode> {
    match text {
        EXCLUSIVE => Some(Mode::Exclusive),
        SHARED => Some(Mode::Shared),
        "u" => Some(Mode::Upgradable),
        permits => {
            let (take, of) = permits.strip_prefix('p')?.split_once('/')?;
            let permits = Permits::new(take.parse().ok()?, of.parse().ok()?).ok()?;
            Some(Mode::Permits(permits))
        }
    }
}

/// The mode of a request that waits: an upgrade waits for the whole lock.
pub(crate) fn parse_asked(text: &str) -> Option<Mode> {
    match text.split_once('<') {
        Some((EXCLUSIVE, _)) => Some(Mode::Exclusive),
        _ => parse(text),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lock_core::LockName;
    use lock_core::backend::request::{RequestOptions, Terms};

    use super::*;

    #[test]
    fn golden() {
        // These never change: a new version must wait in one queue with an old one.
        let options = || {
            let name = LockName::new("a").expect("a valid name");
            RequestOptions::new(name, Terms::new(Duration::from_secs(1)))
        };
        let permits = Permits::new(2, u32::MAX).expect("fewer than there are");
        let golden = [
            (Mode::Exclusive, "x"),
            (Mode::Shared, "s"),
            (Mode::Upgradable, "u"),
            (Mode::Permits(permits), "p2/4294967295"),
        ];
        for (mode, text) in golden {
            let (request, _control) = options().mode(mode).start();
            assert_eq!(of(&request).expect("a mode of ours"), text);
            assert_eq!((parse(text), parse_asked(text)), (Some(mode), Some(mode)));
        }
        let (base, _control) = options().mode(Mode::Upgradable).start();
        let (upgrade, _other) = options().replacing(&base).start();
        assert_eq!(of(&upgrade).expect("a mode of ours"), format!("x<{}", base.holder()));
        assert_eq!(parse_asked("x<0"), Some(Mode::Exclusive));
        for odd in ["", "y", "p", "p1", "p0/1", "p2/1", "p1/4294967296", "x<"] {
            assert_eq!(parse(odd), None, "{odd:?}");
        }
    }
}
