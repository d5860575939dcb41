// Registration, and sign-in.
import { useEffect, useState } from "preact/hooks";
import { ApiError, messageOf } from "../api/client";
import { signIn, signUp, beginWithKey } from "../api/signin";
import { passwordError, usernameError } from "../logic/validation";
import { Field, Form } from "./form";
import { useTitle } from "./title";

const forgetAddress = () => history.replaceState(history.state, "", location.pathname);

/** Given is the key of a wall that is in the address, or "". */
export default function SignInPage({ given }: { given: string }) {
  useTitle("Sign in");
  const [fresh, setFresh] = useState(false);
  const [wall, setWall] = useState(location.pathname === "/wall");
  return (
    <main id="main" class="gate">
      <h1><img src="/icon.svg" alt="" width="40" height="40" /> Coldaisle</h1>
      <p class="lead">Temperature and humidity of your server rooms, at a glance.</p>
      <section class="card">
        {wall ? (
          <>
            <h2>Show on a wall</h2>
            <KeyForm given={given} />
            <p class="switch">
              <button type="button" class="link" onClick={() => { forgetAddress(); setWall(false); }}>
                Sign in instead
              </button>
            </p>
          </>
        ) : <>
        <h2>{fresh ? "Create an account" : "Sign in"}</h2>
        {fresh ? <SignUpForm /> : <SignInForm email="" />}
        <p class="switch">
          {fresh ? "Have an account?" : "New here?"}{" "}
          <button type="button" class="link" onClick={() => setFresh(!fresh)}>
            {fresh ? "Sign in" : "Create an account"}
          </button>
          {" · "}<button type="button" class="link" onClick={() => setWall(true)}>Show on a wall</button>
        </p>
        </>}
      </section>
    </main>
  );
}

export function SignInForm({ email: known, onDone }: { email: string; onDone?: () => void }) {
  const [email, setEmail] = useState(known);
  const [password, setPassword] = useState("");
  return (
    <Form action="Sign in" onSubmit={async () => { await signIn(email, password); onDone?.(); }}>
      <Field label="E-mail" name="email" type="email" value={email} onInput={setEmail}
        autoComplete="username" maxLength={120} />
      <Field label="Password" name="password" type="password" value={password} onInput={setPassword}
        autoComplete="current-password" autoFocus={known !== ""} />
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
      beginWithKey(given).then(forgetAddress, (refused: unknown) => {
        setError(refused);
        // A screen that starts before its network, or while the service is too busy, tries again.
        const answered = refused instanceof ApiError && refused.status < 500 && refused.status !== 429;
        if (!answered) timer = setTimeout(begin, 10_000);
      });
    };
    begin();
    return () => clearTimeout(timer);
  }, [given]);
  return (
    <Form action="Show" onSubmit={() => beginWithKey(key.trim()).then(forgetAddress)}>
      <Field label="API key" name="key" type="password" value={key} onInput={setKey} autoComplete="off"
        hint="A key that may only read, from Setup, API keys." />
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
      <Field label="E-mail" name="email" type="email" value={email} onInput={setEmail}
        autoComplete="username" maxLength={120} />
      <Field label="Username" name="username" value={username} onInput={setUsername} autoComplete="nickname"
        hint="6 to 12 characters." error={tried ? usernameError(username) : null} />
      <Field
        label="Password" name="password" type="password" value={password} onInput={setPassword}
        autoComplete="new-password"
        hint="At least 8 characters with an uppercase letter, a lowercase letter and a digit."
        error={tried ? passwordError(password) : null}
      />
    </Form>
  );
}
