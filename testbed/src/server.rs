//! A running server and its controls, the same for every kind.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::Signal;

use crate::Error;
use crate::own::{Data, Own};
use crate::recipe::Recipe;
use crate::url::Url;

/// A server to test against. Clones share it; the last one to be dropped ends it.
#[derive(Debug, Clone)]
pub struct Server {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    recipe: Box<dyn Recipe>,
    url: Url,
    port: u16,
    /// `None`: it ran already.
    own: Option<Mutex<Own>>,
}

impl Server {
    /// Its URL, with the credentials that it was started with.
    pub fn url(&self) -> String {
        self.url_at(self.address())
    }

    /// The same with another `HOST:PORT`: a proxy's.
    pub fn url_at(&self, address: &str) -> String {
        self.inner.url.at(address)
    }

    /// `HOST:PORT`.
    pub fn address(&self) -> &str {
        &self.inner.url.address
    }

    /// Its port, the same after every restart.
    pub fn port(&self) -> u16 {
        self.inner.port
    }

    /// `HOST:PORT` of the port on which it also listens without TLS, if [its own](Self::address) is one with TLS.
    pub fn plain_address(&self) -> Option<String> {
        let port = self.inner.recipe.plain_port()?;
        Some(format!("127.0.0.1:{port}"))
    }

    /// The port on which it listens without TLS.
    pub(crate) fn control_port(&self) -> u16 {
        self.inner.recipe.plain_port().unwrap_or(self.inner.port)
    }

    /// Whether it ran already, so that it cannot be controlled and others may use it too.
    pub fn is_external(&self) -> bool {
        self.inner.own.is_none()
    }

    /// Ends it with SIGKILL. It is gone when this returns; killing a dead server does nothing.
    ///
    /// # Errors
    /// [`Error::NotOurs`].
    pub fn kill(&self) -> Result<(), Error> {
        self.own()?.kill()
    }

    /// Stops its process with SIGSTOP: connections stay open and nobody answers.
    ///
    /// # Errors
    /// [`Error::NotOurs`], [`Error::NotRunning`].
    pub fn pause(&self) -> Result<(), Error> {
        self.own()?.signal(self.name(), Signal::STOP)
    }

    /// Lets a paused server go on.
    ///
    /// # Errors
    /// [`Error::NotOurs`], [`Error::NotRunning`].
    pub fn resume(&self) -> Result<(), Error> {
        self.own()?.signal(self.name(), Signal::CONT)
    }

    /// Kills it if it runs and starts it on the same port with the same data: all that it acknowledged is still there.
    /// Returns when it answers.
    ///
    /// # Errors
    /// [`Error::NotOurs`], [`Error::Start`].
    ///
    /// # Cancel safety
    /// Goes on to its end in the background.
    pub async fn restart(&self) -> Result<(), Error> {
        let server = self.clone();
        blocking(move || server.own()?.restart(&*server.inner.recipe, Data::Keep)).await
    }

    /// Like [`restart`](Self::restart), but it has forgotten everything.
    ///
    /// # Errors
    /// [`Error::NotOurs`], [`Error::Start`].
    ///
    /// # Cancel safety
    /// Goes on to its end in the background.
    pub async fn restart_without_data(&self) -> Result<(), Error> {
        let server = self.clone();
        blocking(move || server.own()?.restart(&*server.inner.recipe, Data::Discard)).await
    }

    /// Like [`restart`](Self::restart), but with what this recipe fills in.
    pub(crate) async fn restart_as(&self, recipe: impl Recipe) -> Result<(), Error> {
        let server = self.clone();
        blocking(move || {
            let mut own = server.own()?;
            own.kill()?;
            own.fill(&recipe)?;
            own.restart(&recipe, Data::Keep)
        })
        .await
    }

    /// Starts one, or gives the one that runs already.
    pub(crate) async fn start(recipe: impl Recipe) -> Result<Self, Error> {
        blocking(move || match external(&recipe)? {
            Some((url, port)) => Ok(Self {
                inner: Arc::new(Inner {
                    recipe: Box::new(recipe),
                    url,
                    port,
                    own: None,
                }),
            }),
            None => Self::start_new(recipe),
        })
        .await
    }

    /// Starts one, also where one runs already.
    pub(crate) async fn start_own(recipe: impl Recipe) -> Result<Self, Error> {
        blocking(move || Self::start_new(recipe)).await
    }

    fn start_new(recipe: impl Recipe) -> Result<Self, Error> {
        let own = Own::start(&recipe)?;
        let port = own.port();
        let url = recipe.url(port);
        let own = Some(Mutex::new(own));
        Ok(Self {
            inner: Arc::new(Inner {
                recipe: Box::new(recipe),
                url,
                port,
                own,
            }),
        })
    }

    fn name(&self) -> &'static str {
        self.inner.recipe.name()
    }

    fn own(&self) -> Result<MutexGuard<'_, Own>, Error> {
        match &self.inner.own {
            // Every step leaves it consistent: a panic elsewhere while it was locked does no harm.
            Some(own) => Ok(own.lock().unwrap_or_else(PoisonError::into_inner)),
            None => Err(Error::NotOurs {
                server: self.name(),
                address: self.address().into(),
                variable: self.inner.recipe.url_variable(),
            }),
        }
    }
}

fn external(recipe: &impl Recipe) -> Result<Option<(Url, u16)>, Error> {
    let variable = recipe.url_variable();
    let Some(value) = std::env::var_os(variable).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    match value.to_str().and_then(Url::parse) {
        Some(url) => {
            let port = url.port().unwrap_or_else(|| recipe.default_port());
            Ok(Some((url, port)))
        }
        // Not its value: there may be a password in it.
        None => {
            let problem = "it is no URL like scheme://host:port".into();
            Err(Error::Variable {
                variable,
                value: "(not shown)".into(),
                problem,
            })
        }
    }
}

/// Runs `work` where it may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(error) => Err(Error::io("waiting for a server")(std::io::Error::other(error))),
    }
}
