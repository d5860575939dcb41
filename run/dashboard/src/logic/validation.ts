// The API's rules for what a user types, checked before the request.

export function usernameError(username: string): string | null {
  const length = [...username].length;
  return length >= 6 && length <= 12 ? null : "Use 6 to 12 characters.";
}

export function passwordError(password: string): string | null {
  if (password.length < 8) return "Use at least 8 characters.";
  if (!/\p{Lu}/u.test(password)) return "Add an uppercase letter.";
  if (!/\p{Ll}/u.test(password)) return "Add a lowercase letter.";
  if (!/\d/.test(password)) return "Add a digit.";
  return new TextEncoder().encode(password).length > 72 ? "Use at most 72 bytes." : null;
}

export function sensorIDError(id: string): string | null {
  return /^[A-Za-z0-9._:-]{1,50}$/.test(id) ? null
    : "Use 1 to 50 letters, digits, dots, underscores, colons or hyphens.";
}
