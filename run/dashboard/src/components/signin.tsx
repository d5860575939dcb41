// Registration, sign-in, and signing in again after the session has ended.
import { useQueryClient } from "@tanstack/react-query";
import { useSyncExternalStore } from "preact/compat";
import { useEffect, useState } from "preact/hooks";
import { ApiError, messageOf } from "../api/client";
import { session, type Session } from "../api/session";
import { signIn, signUp, beginWithKey } from "../api/signin";
import { passwordError, usernameError } from "../logic/validation";
import { useNow } from "./clock";
import { Dialog } from "./dialog";
import { Field, Form } from "./form";

/** A wall's browser is started with the key behind #key=, which no browser sends. */
const keyInAddress = /^#key=(.+)$/;

export function SignInPage() {
  const [fresh, setFresh] = useState(false);
  const [given] = useState(() => keyInAddress.exec(location.hash)?.[1] ?? "");
  const [wall, setWall] = useState(location.pathname === "/wall");
  return (
    <main id="main" class="gate">
      <h1><img src="/icon.svg" alt="" width="40" height="40" /> Coldaisle</h1>
      <p class="lead">Temperature and humidity of your server rooms, at a glance.</p>
      <section class="card">
        {wall ? (
          <>
            <h2>Show on a wall</h2>
            <KeyForm given={decodeURIComponent(given)} />
            <p class="switch"><button type="button" class="link" onClick={() => setWall(false)}>Sign in instead</button></p>
          </>
        ) : <>
        <h2>{fresh ? "Create an account" : "Sign in"}</h2>
        {fresh ? <SignUpForm /> : <SignInForm email="" />}
        <p class="switch">
          {fresh ? "Have an account?" : "New here?"}{" "}
          <button type="button" class="link" onClick={() => setFresh(!fresh)}>{fresh ? "Sign in" : "Create an account"}</button>
          {" · "}<button type="button" class="link" onClick={() => setWall(true)}>Show on a wall</button>
        </p>
        </>}
      </section>
    </main>
  );
}

function SignInForm({ email: known, onDone }: { email: string; onDone?: () => void }) {
  const [email, setEmail] = useState(known);
  const [password, setPassword] = useState("");
  return (
    <Form action="Sign in" onSubmit={async () => { await signIn(email, password); onDone?.(); }}>
      <Field label="E-mail" name="email" type="email" value={email} onInput={setEmail} autoComplete="username" maxLength={120} />
      <Field label="Password" name="password" type="password" value={password} onInput={setPassword} autoComplete="current-password" autoFocus={known !== ""} />
    </Form>
  );
}

function KeyForm({ given }: { given: string }) {
  const [key, setKey] = useState(given);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    if (given === "") return;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const begin = () => {
      beginWithKey(given).then(() => history.replaceState(history.state, "", location.pathname), (refused: unknown) => {
        setError(refused);
        // A screen that starts before its network tries again.
        if (!(refused instanceof ApiError && refused.status < 500)) timer = setTimeout(begin, 10_000);
      });
    };
    begin();
    return () => clearTimeout(timer);
  }, [given]);
  return (
    <Form action="Show" onSubmit={() => beginWithKey(key.trim())}>
      <Field label="API key" name="key" type="password" value={key} onInput={setKey} autoComplete="off" hint="One with the scope read, of the page API keys." />
      {error !== null && <p class="error" role="alert">{messageOf(error)}</p>}
    </Form>
  );
}

function SignUpForm() {
  const [email, setEmail] = useState("");
  const [username, setUsername] = useState("");
  const [password, setPassword] = useState("");
  const [tried, setTried] = useState(false);
  return (
    <Form
      action="Create account"
      onSubmit={async () => {
        setTried(true);
        if (!usernameError(username) && !passwordError(password)) await signUp(email, username, password);
      }}
    >
      <Field label="E-mail" name="email" type="email" value={email} onInput={setEmail} autoComplete="username" maxLength={120} />
      <Field label="Username" name="username" value={username} onInput={setUsername} autoComplete="nickname" hint="6 to 12 characters." error={tried ? usernameError(username) : null} />
      <Field
        label="Password" name="password" type="password" value={password} onInput={setPassword} autoComplete="new-password"
        hint="At least 8 characters with an uppercase letter, a lowercase letter and a digit." error={tried ? passwordError(password) : null}
      />
    </Form>
  );
}

/** How long before its end a session can be renewed: milliseconds. */
const noticed = 180_000;

/**
 * Says that the session is about to end, and asks for the password over the page: before
 * the end when the user wants it, at the end in any case. The page stays as it is, and
 * so does what is typed here when the session ends meanwhile.
 */
export function SessionEnd() {
  useNow(10_000);
  const expired = useSyncExternalStore(session.subscribe, session.expired);
  const [renewing, setRenewing] = useState(false);
  const current = session.get();
  if (!current) return null;
  if (expired || renewing) return <SignInAgain ended={expired} who={current} onClose={() => setRenewing(false)} />;
  const left = session.left();
  if (left > noticed) return null;
  return (
    <div class="session-end" role="status">
      <span>Your session ends in {Math.max(1, Math.ceil(left / 60_000))} min.</span>
      <button type="button" onClick={() => setRenewing(true)}>Stay signed in</button>
    </div>
  );
}

function SignInAgain({ ended, who, onClose }: { ended: boolean; who: Session; onClose: () => void }) {
  const queries = useQueryClient();
  // Also when the session was renewed in another tab.
  useEffect(() => () => {
    if (ended) void queries.invalidateQueries();
  }, [ended]);
  return (
    <Dialog title={ended ? "Your session has ended" : "Stay signed in"} onClose={ended ? undefined : onClose}>
      <p>{ended ? "Sign in again to go on where you were." : "Your password, please. The page stays as it is."}</p>
      <SignInForm
        email={who.email}
        onDone={() => {
          // Another person must not see the data of the page below.
          if (session.get()?.email !== who.email) queries.clear();
          onClose();
        }}
      />
      {ended && <button type="button" class="link" onClick={() => session.end()}>Sign out instead</button>}
    </Dialog>
  );
}
