// Registration, sign-in, and signing in again after the session has ended.
import { useState } from "preact/hooks";
import { useQueryClient } from "@tanstack/react-query";
import { session } from "../api/session";
import { signIn, signUp } from "../api/signin";
import { passwordError, usernameError } from "../logic/validation";
import { Dialog } from "./dialog";
import { Field, Form } from "./form";

export function SignInPage() {
  const [fresh, setFresh] = useState(false);
  return (
    <main id="main" class="gate">
      <h1><img src="/icon.svg" alt="" width="40" height="40" /> Coldaisle</h1>
      <p class="lead">Temperature and humidity of your server rooms, at a glance.</p>
      <section class="card">
        <h2>{fresh ? "Create an account" : "Sign in"}</h2>
        {fresh ? <SignUpForm /> : <SignInForm email="" />}
        <p class="switch">
          {fresh ? "Have an account?" : "New here?"}{" "}
          <button type="button" class="link" onClick={() => setFresh(!fresh)}>{fresh ? "Sign in" : "Create an account"}</button>
        </p>
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

/** The dialog over the page that was open when the session ended. The page stays as it is. */
export function SignInAgain() {
  const queries = useQueryClient();
  const ended = session.get();
  if (!ended) return null;
  return (
    <Dialog title="Your session has ended">
      <p>Sign in again to go on where you were.</p>
      <SignInForm
        email={ended.email}
        onDone={() => {
          // Another customer must not see the data of the page below.
          if (session.get()?.customerID !== ended.customerID) queries.clear();
          void queries.invalidateQueries();
        }}
      />
      <button type="button" class="link" onClick={() => { session.end(); queries.clear(); }}>Sign out instead</button>
    </Dialog>
  );
}
