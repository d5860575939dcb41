// Signing in does not use the client's middleware: it needs no token, and its 401
// means a wrong password.
import { ApiError } from "./client";
import { session } from "./session";

async function post(path: string, body: object): Promise<unknown> {
  const response = await fetch(path, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  });
  const answer = (await response.json().catch(() => ({}))) as { detail?: string };
  if (!response.ok) throw new ApiError(response.status, answer.detail ?? `The service answered ${response.status}.`);
  return answer;
}

export async function signIn(email: string, password: string): Promise<void> {
  const answer = (await post("/api/v1/customers/login", { email, password })) as { access_token: string };
  session.start(answer.access_token, email);
}

export async function signUp(email: string, username: string, password: string): Promise<void> {
  await post("/api/v1/customers/register", { email, username, password });
  await signIn(email, password);
}
