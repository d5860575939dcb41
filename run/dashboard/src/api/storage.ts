/** A text that survives a reload. Where the browser forbids storage, or has no room for it, it lives as long as the
 * page. */
export class Stored {
  private unkept: string | null = null;

  constructor(private readonly area: "localStorage" | "sessionStorage", private readonly key: string) {}

  get(): string | null {
    try {
      return this.unkept ?? window[this.area].getItem(this.key);
    } catch {
      return null;
    }
  }

  /** Whether it survives a reload. */
  set(value: string | null): boolean {
    this.unkept = null;
    try {
      if (value === null) window[this.area].removeItem(this.key);
      else window[this.area].setItem(this.key, value);
      return true;
    } catch {
      this.unkept = value;
      return false;
    }
  }
}
