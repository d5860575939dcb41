// The API's documentation in a browser: it shows the operations, and like every
// page of a test it asks no other host and trips no policy (see user.ts).
import { expect, test, url } from "./user";

test("the API's documentation works without any other host", async ({ page }) => {
  await page.goto(url("/docs"));
  await expect(page.getByText("/api/v1/server_rooms/new_room").first()).toBeVisible();
  await page.goto(url("/redoc"));
  await expect(page.getByRole("heading", { name: "Register", exact: false })
    .or(page.getByRole("heading", { name: "Log in" })).first()).toBeVisible();
});
